"""A pool without processes: its cells are tables that a test drives, its zygotes note what they are asked for."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytest

from toolcell.pool import maker as maker_module
from toolcell.pool.cell import Cell, CellOwner, Snapshot
from toolcell.pool.cell.cell import Binding
from toolcell.pool.cell.state import WITH_CALL, Action, Event, State, Stateful
from toolcell.pool.fleet import Fleet
from toolcell.pool.pool import Pool
from toolcell.pool.reactor import FaultHandler, Reactor
from toolcell.pool.run import CellKey, CellSpec, Outcome, Run
from toolcell.rules.call import ToolCall
from toolcell.wire.messages import Failed
from toolcell_sandbox import CellProfile, Limits
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.view import Bind


def spec(session: str = "s", grants: str = "read", kept: str = "") -> CellSpec:
    key = CellKey(session, frozenset(grants.split()), Limits(), kept)
    return CellSpec(key, CellProfile(), (), "/tmp")


class FakeRun(Run):
    """A call that says nothing."""

    def __init__(self, id: str, of: CellSpec, *, wall_s: float = 30.0, exclusive: str = "") -> None:
        super().__init__(ToolCall(id, "tool", {}), of, wall_s, exclusive)

    @property
    def served_by(self) -> "FakeCell | None":
        return cast("FakeCell | None", self.cell)

    @property
    def ending(self) -> str:
        return self.outcome.ending if self.outcome is not None else ""

    def on_progress(self, progress: object) -> None: ...
    def on_log(self, log: object) -> None: ...
    def on_output(self, output: object, before: object) -> None: ...
    def on_request(self, request: object) -> None: ...
    def on_incident(self, what: str) -> None: ...
    def on_connection(self, connection: object) -> bool:
        return False

    def on_ended(self) -> bool:
        return False


class FakeCell(Stateful):
    """What the pool knows as a cell. A test says what happens to it; the table says what follows. `done` are the
    actions that this took."""

    def __init__(self, id: int, slot: int, spec: CellSpec, *given: Any, cgroup: None, standby: bool) -> None:
        super().__init__()
        self._do = {action: partial(self._carry_out, action) for action in Action}
        self.id, self.slot, self.spec, self.cgroup = id, slot, spec, cgroup
        self.pool: CellOwner = given[2]
        self.calls = self  # it is its own calls as well
        self.run: Run | None = None
        self.verdict: Outcome | None = None
        self.binding: Binding | None = None
        self.failure: Failed | None = None
        self.idle_since = 0.0
        self.ahead_due = float("inf")
        self.unfit = False
        self.lowered = self.is_quick = False
        self.inspected = 0
        self.done: list[Action] = []
        self._kept_state = False  # whether its kept process has had a call

    def _carry_out(self, action: Action) -> None:
        own = cast("Cell", self)
        self.done.append(action)
        match action:
            case Action.OFFER:
                self.idle_since = time.monotonic()
                self.pool.on_idle(own)
            case Action.ASK_FOR_PATHS:
                self.pool.on_lacking(own)
            case Action.CONCLUDE if self.run is not None:
                run, self.run = self.run, None
                run.end(self.verdict or Outcome(ending="lost"), time.monotonic())
                self.verdict = None
                if run.exclusive:
                    self.pool.on_call_ended(run)
            case Action.INTRODUCE:
                self.binding = None
            case Action.EXCUSE:
                self.failure = None
            case Action.BURY:
                self.pool.on_dead(own, None if self.binding is not None else self.failure)
            case _:
                pass

    # -- what a test says ---------------------------------------------------------------------------------------------

    def start(self) -> "FakeCell":
        """The zygote has made it, and it is ready, or prewarmed."""
        self.on(Event.SPAWNED)
        self.ready()
        return self

    def ready(self) -> None:
        self.on(Event.SWEPT)
        if self.binding is not None:
            self.on(Event.LACKING)
        else:
            self.on(Event.PREWARMED if self.spec.unbound else Event.READY)

    def answer(self) -> None:
        self.verdict = Outcome(ending="result")
        self.on(Event.KEPT_ANSWER if self.spec.key.kept_tool else Event.ANSWERED)

    def refuse(self, step: str) -> None:
        """Its zygote could not make it."""
        self.failure = Failed(step, "It failed.", "", "Try again.")
        self.on(Event.NOT_SPAWNED)

    # -- what the pool asks of a cell ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        run = self.run
        seen = Snapshot(self.id, self.spec.key, self.state, self.idle_since)
        return seen if run is None else Snapshot(*seen[:4], run.exclusive, run.started_at, run.deadline_at)

    def check(self, now: float) -> bool:
        return self.free

    def assign(self, run: Run, now: float) -> None:
        self.on(Event.ASSIGNED)
        self.run, run.cell, run.started_at = run, cast("Cell", self), now
        if self.spec.key.kept_tool and not self._kept_state:
            self._kept_state = True
            self.pool.on_new_process(cast("Cell", self), run)

    def claim(self, spec: CellSpec, lacking: Sequence[Bind]) -> None:
        self.spec, self.binding = spec, Binding(lacking, ())
        self.on(Event.CLAIMED)

    def on_bound(self) -> None:
        self.on(Event.BOUND)

    def end(self, outcome: Outcome) -> None:
        if self.state in WITH_CALL:
            self.verdict = outcome
            self.on(Event.ENDED)

    def report(self, what: str) -> None: ...

    def weigh(self, calls: int) -> None:
        self.lowered = calls > 1

    def hurry(self) -> None:
        self.lowered = False

    def inspect(self, now: float) -> None:
        self.inspected += 1

    def retire(self) -> None:
        if self.spec.key.kept_tool and self.free and self._kept_state:
            self.on(Event.RETIRED)
        elif self.state is not State.RETIRING:
            self.kill()

    def kill(self) -> None:
        self.on(Event.KILLED)

    def orphan(self) -> None:
        self.on(Event.ORPHANED)

    def die(self) -> None:
        self.on(Event.DIED)


class FakeFleet:
    """Takes note of the cells that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[FakeCell] = []
        self.bound: list[FakeCell] = []
        self.has_capacity = True
        self.report = SandboxReport((), "rootless")
        self.lives = True
        self.resumes_at = 0.0

    def __bool__(self) -> bool:
        return self.lives

    def make(self, cell: FakeCell, message: object, particulars: object) -> None:
        self.asked.append(cell)

    def bind(self, cell: FakeCell, paths: Sequence[Bind]) -> None:
        self.bound.append(cell)

    def absence(self) -> Outcome:
        return Outcome(ending="unavailable")

    def forget(self, id: int) -> None: ...
    def stand_down(self) -> None: ...
    def close(self) -> None: ...


class FakeWaiter:
    value: Any = None

    def set(self, value: Any, *, later: bool = False) -> None:
        self.value = value


class FakeReactor(FaultHandler):
    """An event loop that turns when a test says so."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []
        self.awake_until: list[float] = []

    def soon(self, callback: Callable[[], None], owner: object = None) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def stay_awake(self, until: float) -> None:
        self.awake_until.append(until)

    def alarm(self, on_alarm: Callable[[], None]) -> Callable[[float], None]:
        return lambda when: None

    def waiter(self) -> FakeWaiter:
        return FakeWaiter()

    def close(self) -> None: ...


class FakePool:
    """A pool of fake cells, and what a test asks it. `repr` is its pool's."""

    def __init__(self, **options: Any) -> None:
        self.reactor, self.fleet = FakeReactor(), FakeFleet()
        self.pool = Pool(cast("Reactor", self.reactor), **({"max_cells": 4, "standby": False} | options))
        self.pool.fleet = self.pool.maker.fleet = cast("Fleet", self.fleet)
        self.pool._open = True
        self._serial = 0

    def __repr__(self) -> str:
        return repr(self.pool)

    def call(self, of: CellSpec, **options: Any) -> FakeRun:
        self._serial += 1
        run = FakeRun(f"c{self._serial}", of, **options)
        self.pool.submit(run)
        return run

    def turn(self) -> None:
        self.reactor.turn()

    def look(self) -> None:
        """Look at the cells, as the pool does periodically."""
        self.pool._watch()

    @property
    def watches(self) -> bool:
        """Whether it will look again."""
        return self.pool._watching is not None

    @property
    def cells(self) -> list[FakeCell]:
        return cast("list[FakeCell]", list(self.pool.cells.values()))

    def starting(self) -> FakeCell:
        """The cell that was asked for last."""
        return self.fleet.asked[-1]


@contextmanager
def fake_cells() -> Iterator[None]:
    """While this is entered, pools make fake cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maker_module, "Cell", FakeCell)
        yield
