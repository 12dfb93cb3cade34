"""What the pool does with its cells, seen in its repr: there is no process, and no clock that ticks."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolcell.pool.cell import State
from toolcell.pool.cell.state import ENDING, Event
from toolcell.pool.maker import not_made
from toolcell.pool.plan import PACED, plan
from toolcell.pool.reactor import IN_A_ROW_S, QUICK_S
from toolcell.pool.run import Outcome
from toolcell.wire.messages import Failed
from toolcell_sandbox.errors import SandboxError

from .fakes import FakePool, fake_cells, spec


@pytest.fixture(autouse=True)
def cells() -> Iterator[None]:
    with fake_cells():
        yield


def test_a_call_waits_for_its_cell_and_the_next_one_finds_it_idle() -> None:
    pool = FakePool()
    first = pool.call(spec())
    assert repr(pool) == "<Pool [cells: 1 starting · calls: 1 queued]>"
    cell = pool.starting().start()
    assert repr(pool) == "<Pool [cells: 1 busy · calls: 0 queued]>"
    cell.answer()
    assert first.ending == "result"
    assert repr(pool) == "<Pool [cells: 1 sweeping · calls: 0 queued]>"
    cell.ready()
    assert repr(pool) == "<Pool [cells: 1 idle · calls: 0 queued]>"
    second = pool.call(spec())
    assert second.served_by is cell and repr(pool) == "<Pool [cells: 1 busy · calls: 0 queued]>"


def test_a_call_that_comes_while_its_cell_is_swept_waits_for_that_one() -> None:
    pool = FakePool()
    pool.call(spec())
    cell = pool.starting().start()
    cell.answer()
    second = pool.call(spec())
    assert repr(pool) == "<Pool [cells: 1 sweeping · calls: 1 queued]>"
    cell.ready()
    assert second.served_by is cell


def test_calls_of_one_session_run_side_by_side_as_far_as_it_may_have_cells() -> None:
    pool = FakePool(cells_per_session=2)
    runs = [pool.call(spec()) for _ in range(3)]
    assert repr(pool) == "<Pool [cells: 2 starting · calls: 3 queued]>"
    first, second = [cell.start() for cell in pool.cells]
    assert repr(pool) == "<Pool [cells: 2 busy · calls: 1 queued]>"
    assert runs[2].served_by is None
    second.answer()
    second.ready()
    assert runs[2].served_by is second and runs[0].served_by is first


def test_the_cell_that_was_idle_longest_is_evicted_where_the_machine_is_full() -> None:
    pool = FakePool(max_cells=2)
    for session in ("a", "b"):
        pool.call(spec(session))
        cell = pool.starting().start()
        cell.answer()
        cell.ready()
    assert repr(pool) == "<Pool [cells: 2 idle · calls: 0 queued]>"
    pool.call(spec("c"))
    assert repr(pool) == "<Pool [cells: 1 idle · 1 starting · 1 ending · calls: 1 queued]>"
    gone, left, coming = pool.cells
    assert (gone.spec.key.session_id, left.spec.key.session_id) == ("a", "b")
    gone.die()
    coming.start()
    assert repr(pool) == "<Pool [cells: 1 idle · 1 busy · calls: 0 queued]>"


def test_a_kept_process_tears_down_before_another_takes_its_room() -> None:
    pool = FakePool(max_cells=1)
    pool.call(spec("a", kept="repl"))
    kept = pool.starting().start()
    kept.answer()
    assert repr(pool) == "<Pool [cells: 1 idle · calls: 0 queued]>"
    pool.call(spec("b"))
    assert kept.state is State.RETIRING and repr(pool) == "<Pool [cells: 1 ending · calls: 1 queued]>"
    kept.on(Event.EXITED)
    kept.die()
    assert repr(pool) == "<Pool [cells: 1 starting · calls: 1 queued]>"


def test_a_kept_process_that_makes_room_is_missed_by_the_next_call_of_its_tool() -> None:
    pool = FakePool(max_cells=1)
    pool.call(spec("a", kept="repl"))
    kept = pool.starting().start()
    kept.answer()
    pool.call(spec("b"))
    kept.on(Event.EXITED)
    kept.die()
    other = pool.starting().start()
    other.answer()
    other.ready()
    again = pool.call(spec("a", kept="repl"))
    other.die()
    pool.starting().start()
    assert "make room" in again.state_lost


def test_the_loop_is_kept_awake_for_the_only_call_of_a_kept_process_that_answers_quickly_in_a_row() -> None:
    pool = FakePool()
    pool.call(spec("a", kept="repl"))
    kept = pool.starting().start()
    kept.answer()
    pool.call(spec("a", kept="repl"))
    kept.answer()
    assert pool.reactor.awake_until == []  # it is not known to be quick
    kept.is_quick = True
    run = pool.call(spec("a", kept="repl"))
    assert pool.reactor.awake_until == [run.queued_at + QUICK_S]
    kept.answer()
    kept.idle_since -= IN_A_ROW_S
    pool.call(spec("a", kept="repl"))
    kept.answer()
    pool.call(spec("b"))
    pool.starting().start()  # the other call runs all the time
    pool.call(spec("a", kept="repl"))
    assert len(pool.reactor.awake_until) == 1


def test_calls_that_must_not_overlap_wait_for_each_other_though_there_is_room() -> None:
    pool = FakePool()
    first, second = pool.call(spec(), exclusive="w"), pool.call(spec(), exclusive="w")
    assert repr(pool) == "<Pool [cells: 1 starting · calls: 2 queued]>"
    cell = pool.starting().start()
    assert repr(pool) == "<Pool [cells: 1 busy · calls: 1 queued]>"
    cell.answer()
    cell.ready()
    pool.turn()
    assert first.ending == "result" and second.served_by is cell


def test_too_many_calls_are_refused_and_say_what_is_full() -> None:
    pool = FakePool(max_cells=1, max_waiting=1)
    pool.call(spec())
    refused = pool.call(spec())
    assert refused.outcome is not None and refused.ending == "overloaded"
    assert refused.outcome.message.startswith("1 call waits already, 1 of them of this session, and")


def test_a_call_that_overtakes_those_that_wait_in_a_row_is_not_refused_early() -> None:
    pool = FakePool(max_cells=4)
    for _ in range(50):
        pool.call(spec(), exclusive="w")
    pace = pool.pool._pace
    for second in range(PACED + 2):
        pace.take(1000.0 + second, is_last=False)  # one write in a second
    assert pace.is_known
    assert pool.call(spec(), exclusive="w", wall_s=10.0).ending == "overloaded"
    assert pool.call(spec(), wall_s=10.0).ending == ""


def test_sessions_that_flood_leave_places_in_the_queue_to_others() -> None:
    pool = FakePool(max_cells=1, max_waiting=100)
    floods = [[pool.call(spec(name)) for _ in range(100)] for name in ("a", "b", "c")]
    waiting = [sum(not run.ending for run in flood) for flood in floods]
    assert waiting[0] == 80 and all(waiting) and sum(waiting) < 100
    assert pool.call(spec("quiet")).ending == ""


def test_a_cell_that_cannot_be_made_ends_the_calls_that_wait_for_it() -> None:
    pool = FakePool()
    run = pool.call(spec())
    pool.starting().refuse("enter")
    assert run.ending == "unavailable" and repr(pool) == "<Pool [cells: none · calls: 0 queued]>"


def test_a_cell_that_cannot_go_on_after_a_call_makes_way_for_another() -> None:
    pool = FakePool()
    pool.call(spec())
    cell = pool.starting().start()
    cell.answer()
    waiting = pool.call(spec())
    cell.failure = Failed("fork", "There was no room.", "", "Try again.")
    cell.die()
    assert waiting.ending == "" and repr(pool) == "<Pool [cells: 1 starting · calls: 1 queued]>"
    pool.starting().start()
    assert waiting.served_by is pool.starting()


def test_a_cell_whose_zygote_is_gone_costs_the_call_that_waits_for_it_nothing() -> None:
    pool = FakePool()
    run = pool.call(spec())
    pool.starting().orphan()
    assert run.ending == "" and repr(pool) == "<Pool [cells: 1 starting · calls: 1 queued]>"
    pool.starting().start()
    assert run.served_by is pool.starting()


@pytest.mark.parametrize("state", [State.SPAWNING, State.STARTING, State.READY, State.BUSY, State.SWEEPING])
def test_the_end_of_a_session_ends_its_cell_in_whatever_state_and_its_calls(state: State) -> None:
    pool = FakePool()
    run = pool.call(spec())
    cell = pool.starting()
    steps: list[Callable[[], object]] = [lambda: cell.on(Event.SPAWNED), cell.ready, cell.answer, cell.ready]
    while cell.state is not state:
        steps.pop(0)()
    assert cell.state is state
    pool.pool.end_session("s")
    assert cell.doomed and run.ending in ("cancelled", "result")
    cell.on(Event.SPAWNED if cell.state is State.DOOMED else Event.DIED)
    if cell.state is not State.DEAD:
        cell.die()
    assert repr(pool) == "<Pool [cells: none · calls: 0 queued]>"


def test_a_call_that_is_cancelled_while_it_waits_is_forgotten() -> None:
    pool = FakePool()
    run = pool.call(spec())
    pool.pool.cancel(run)
    assert run.ending == "cancelled" and repr(pool) == "<Pool [cells: 1 starting · calls: 0 queued]>"
    assert pool.starting().start().state is State.READY


def test_a_call_that_dies_with_its_cell_is_lost_and_the_next_one_gets_another() -> None:
    pool = FakePool()
    first = pool.call(spec())
    cell = pool.starting().start()
    second = pool.call(spec(), exclusive="")
    cell.verdict = Outcome(ending="lost")
    cell.die()
    assert first.ending == "lost" and second.ending == ""
    assert repr(pool) == "<Pool [cells: 1 starting · calls: 1 queued]>"


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from("ab"), st.sampled_from(("", "repl")), st.sampled_from(("", "w"))),
        st.tuples(st.sampled_from(("start", "answer", "ready", "die")), st.integers(0, 9)),
    ),
    max_size=40,
)


@given(EVENTS, st.integers(1, 5), st.integers(1, 4))
@example([("call", "a", "repl", ""), ("call", "a", "", ""), ("call", "a", "", ""), ("start", 0), ("start", 0)], 4, 4)
def test_no_call_waits_that_the_plan_would_serve_now(
    events: list[tuple[Any, ...]], max_cells: int, cells_per_session: int
) -> None:
    """After any order of events. The pool does not compute the plan at each of them."""
    pool = FakePool(max_cells=max_cells, cells_per_session=cells_per_session)
    specs = {(session, kept): spec(session, kept=kept) for session in "ab" for kept in ("", "repl")}
    wanted = {"start": State.SPAWNING, "answer": State.BUSY, "ready": State.SWEEPING}
    for event, *given_ in events:
        if event == "call":
            session, kept, exclusive = given_
            pool.call(specs[session, kept], exclusive=exclusive and f"{exclusive} {session}")
        else:
            born = [cell for cell in pool.cells if event == "start" or cell.state is not State.SPAWNING]
            cells = [cell for cell in born if wanted.get(event, cell.state) is cell.state]
            if cells:
                getattr(cells[given_[0] % len(cells)], event)()
        pool.turn()
        inner, snapshots = pool.pool, [cell.snapshot() for cell in pool.cells]
        if any(each.state in ENDING for each in snapshots):
            continue  # the death of a cell computes the plan
        assert plan(inner.waiting, snapshots, inner._room, inner._exclusive, 0.0, inner._rivals.seen) == [], pool


def test_a_cell_that_cannot_be_made_names_the_interpreter_only_where_that_is_missing() -> None:
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    missing.filename = sys.executable
    assert "sys.executable must be this Python" in not_made(missing).message
    missing.filename = "/sys/fs/cgroup/gone"
    assert not_made(missing).message.endswith("No such file or directory. Try again; see the supervisor's log.")
    assert "ulimit -n" in not_made(OSError(errno.EMFILE, "many")).cure
    unreadable = SandboxError("It cannot be read", step="view", cure="Make it readable.", errno=errno.EACCES)
    assert not_made(unreadable).cure == "Make it readable."
