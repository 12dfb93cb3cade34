"""The plan, without any process: cells and runs are made of the few facts that it looks at."""

from dataclasses import dataclass
from typing import Any, cast

from toolcell.pool.cell import Cell, CellState
from toolcell.pool.plan import Action, Assign, Retire, Room, Spawn, outlived, plan
from toolcell.pool.run import CellKey, CellSpec, Run
from toolcell_sandbox import Limits, Profile

ROOM = Room(cells=4, cells_per_session=3)


def spec(session: str = "s", grants: str = "read", kept: str = "") -> CellSpec:
    key = CellKey(session, frozenset(grants.split()), Limits(), kept)
    return CellSpec(key, Profile(), (), "/tmp")


@dataclass(eq=False)
class FakeRun:
    spec: CellSpec
    exclusive: str = ""


@dataclass(eq=False)
class FakeCell:
    spec: CellSpec
    state: CellState = CellState.READY
    idle_since: float = 0.0
    run: FakeRun | None = None
    doomed: bool = False

    @property
    def free(self) -> bool:
        return self.state is CellState.READY


def decide(runs: list[FakeRun], cells: list[FakeCell], room: Room = ROOM, taken: str = "") -> list[Action]:
    return plan(cast("list[Run]", runs), cast("list[Cell]", cells), room, set(taken.split()))


def test_a_call_goes_to_the_cell_that_was_used_last() -> None:
    old, young = FakeCell(spec(), idle_since=1.0), FakeCell(spec(), idle_since=2.0)
    run = FakeRun(spec())
    assert decide([run], [young, old]) == [Assign(cast(Run, run), cast(Cell, young))]


def test_a_call_never_goes_to_a_cell_of_other_grants_or_of_another_session() -> None:
    run = FakeRun(spec())
    assert decide([run], [FakeCell(spec(grants="read write")), FakeCell(spec("other"))]) == [Spawn(run.spec)]


def test_a_call_waits_for_a_cell_that_is_on_its_way() -> None:
    run = FakeRun(spec())
    assert decide([run], [FakeCell(spec(), CellState.RECYCLING)]) == []
    assert decide([run], [FakeCell(spec(), CellState.STARTING)]) == []


def test_each_cell_on_its_way_is_counted_for_one_call_only() -> None:
    first, second = FakeRun(spec()), FakeRun(spec())
    assert decide([first, second], [FakeCell(spec(), CellState.STARTING)]) == [Spawn(second.spec)]


def test_calls_that_must_not_overlap_run_one_after_the_other() -> None:
    first, second = FakeRun(spec(), "s"), FakeRun(spec(), "s")
    cells = [FakeCell(spec()), FakeCell(spec())]
    assert [type(action) for action in decide([first, second], cells)] == [Assign]
    assert decide([second], [FakeCell(spec(), CellState.BUSY), FakeCell(spec())], taken="s") == []
    assert decide([second], [FakeCell(spec()), FakeCell(spec())], taken="s") == []  # over, and not audited yet


def test_calls_that_may_overlap_overtake_one_that_waits_for_its_turn() -> None:
    busy = FakeCell(spec(), CellState.BUSY)
    waiting, free = FakeRun(spec(), "s"), FakeRun(spec())
    idle = FakeCell(spec(), idle_since=1.0)
    assert decide([waiting, free], [busy, idle], taken="s") == [Assign(cast(Run, free), cast(Cell, idle))]


def test_a_full_session_retires_its_own_longest_idle_cell_and_nobody_elses() -> None:
    cells = [FakeCell(spec(grants=f"read {other}"), idle_since=when) for other, when in (("write", 3.0), ("web", 2.0))]
    cells.append(FakeCell(spec(grants="channel"), CellState.BUSY, run=FakeRun(spec())))
    run = FakeRun(spec())
    assert decide([run], cells) == [Retire(cast(Cell, cells[1])), Spawn(run.spec)]


def test_a_full_machine_retires_the_longest_idle_cell_of_any_session() -> None:
    cells = [FakeCell(spec(f"other{number}"), idle_since=float(9 - number)) for number in range(4)]
    run = FakeRun(spec())
    assert decide([run], cells) == [Retire(cast(Cell, cells[3])), Spawn(run.spec)]


def test_where_everything_is_busy_a_call_waits() -> None:
    cells = [FakeCell(spec(f"o{n}"), CellState.BUSY, run=FakeRun(spec())) for n in range(4)]
    assert decide([FakeRun(spec())], cells) == []


def test_a_kept_process_is_one_and_is_never_retired() -> None:
    kept = FakeCell(spec(kept="repl"), CellState.BUSY, run=FakeRun(spec(kept="repl")))
    assert decide([FakeRun(spec(kept="repl"))], [kept]) == []
    idle = FakeCell(spec(kept="repl"))
    crowded = Room(cells=1, cells_per_session=3)
    assert decide([FakeRun(spec("other"))], [idle], crowded) == []
    assert outlived([cast(Any, idle)], now=1e9, idle_s=1.0) == []


def test_doomed_and_dead_cells_do_not_count() -> None:
    run = FakeRun(spec())
    cells = [FakeCell(spec(), CellState.RECYCLING, doomed=True), FakeCell(spec(), CellState.DEAD)]
    assert decide([run], cells) == [Spawn(run.spec)]


def test_idle_cells_outlive_their_time_and_busy_ones_do_not() -> None:
    idle, busy = FakeCell(spec(), idle_since=1.0), FakeCell(spec(), CellState.BUSY, idle_since=1.0)
    assert outlived([cast(Any, idle), cast(Any, busy)], now=62.0, idle_s=60.0) == [Retire(cast(Cell, idle))]
