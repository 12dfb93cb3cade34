"""The plan, without any process: of runs and cells there are the few facts that it looks at."""

from dataclasses import dataclass
from itertools import count

from toolcell.pool.cell import Snapshot, State
from toolcell.pool.plan import (
    HELD_S,
    Assign,
    Decision,
    Retire,
    Room,
    Spawn,
    behind,
    fairly,
    foremost,
    gives_way,
    may_queue,
    obstacle,
    outlived,
    plan,
)
from toolcell.pool.run import CellKey, CellSpec
from toolcell_sandbox import CellProfile, Limits

_ids = count(1)
ROOM = Room(cells=4, cells_per_session=3)


def spec(session: str = "s", grants: str = "read", kept: str = "") -> CellSpec:
    key = CellKey(session, frozenset(grants.split()), Limits(), kept)
    return CellSpec(key, CellProfile(), (), "/tmp")


@dataclass(eq=False)
class FakeRun:
    spec: CellSpec
    exclusive: str = ""
    started_at: float = 0.0
    deadline_at: float = 1000.0


def cell(spec: CellSpec, state: State = State.READY, idle_since: float = 0.0, run: FakeRun | None = None) -> Snapshot:
    of_run = (run.exclusive, run.started_at, run.deadline_at) if run is not None else ()
    return Snapshot(next(_ids), spec.key, state, idle_since, *of_run)


def decide(runs: list[FakeRun], cells: list[Snapshot], room: Room = ROOM, taken: str = "") -> list[Decision[FakeRun]]:
    return plan(runs, cells, room, set(taken.split()))


def test_a_call_goes_to_the_cell_that_was_used_last() -> None:
    old, young = cell(spec(), idle_since=1.0), cell(spec(), idle_since=2.0)
    run = FakeRun(spec())
    assert decide([run], [young, old]) == [Assign(run, young.id)]


def test_a_call_never_goes_to_a_cell_of_other_grants_or_of_another_session() -> None:
    run = FakeRun(spec())
    assert decide([run], [cell(spec(grants="read write")), cell(spec("other"))]) == [Spawn(run.spec)]


def test_a_call_waits_for_a_cell_that_is_on_its_way() -> None:
    run = FakeRun(spec())
    assert decide([run], [cell(spec(), State.SWEEPING)]) == []
    assert decide([run], [cell(spec(), State.STARTING)]) == []


def test_each_cell_on_its_way_is_counted_for_one_call_only() -> None:
    first, second = FakeRun(spec()), FakeRun(spec())
    assert decide([first, second], [cell(spec(), State.STARTING)]) == [Spawn(second.spec)]


def test_calls_that_must_not_overlap_run_one_after_the_other() -> None:
    first, second = FakeRun(spec(), "s"), FakeRun(spec(), "s")
    cells = [cell(spec()), cell(spec())]
    assert [type(action) for action in decide([first, second], cells)] == [Assign]
    assert decide([second], [cell(spec(), State.BUSY), cell(spec())], taken="s") == []
    assert decide([second], [cell(spec()), cell(spec())], taken="s") == []  # over, and not audited yet


def test_calls_that_may_overlap_overtake_one_that_waits_for_its_turn() -> None:
    busy = cell(spec(), State.BUSY)
    waiting, free = FakeRun(spec(), "s"), FakeRun(spec())
    idle = cell(spec(), idle_since=1.0)
    assert decide([waiting, free], [busy, idle], taken="s") == [Assign(free, idle.id)]


def test_a_full_session_retires_its_own_longest_idle_cell_and_nobody_elses() -> None:
    cells = [cell(spec(grants=f"read {other}"), idle_since=when) for other, when in (("write", 3.0), ("web", 2.0))]
    cells.append(cell(spec(grants="channel"), State.BUSY, run=FakeRun(spec())))
    run = FakeRun(spec())
    assert decide([run], cells) == [Retire(cells[1].id), Spawn(run.spec)]


def test_a_full_machine_retires_the_longest_idle_cell_of_any_session() -> None:
    cells = [cell(spec(f"other{number}"), idle_since=float(9 - number)) for number in range(4)]
    run = FakeRun(spec())
    assert decide([run], cells) == [Retire(cells[3].id), Spawn(run.spec)]


def test_where_everything_is_busy_a_call_waits() -> None:
    cells = [cell(spec(f"o{n}"), State.BUSY, run=FakeRun(spec())) for n in range(4)]
    assert decide([FakeRun(spec())], cells) == []


def test_a_kept_process_is_one_and_does_not_end_by_being_idle() -> None:
    kept = cell(spec(kept="repl"), State.BUSY, run=FakeRun(spec(kept="repl")))
    assert decide([FakeRun(spec(kept="repl"))], [kept]) == []
    assert outlived([cell(spec(kept="repl"))], now=1e9, idle_s=1.0) == []


def test_two_calls_that_wait_for_one_kept_process_get_one() -> None:
    first, second = FakeRun(spec(kept="repl")), FakeRun(spec(kept="repl"))
    assert decide([first, second], []) == [Spawn(first.spec)]


def test_the_kept_process_that_has_been_idle_longest_makes_room_for_a_call_that_waits() -> None:
    cells = [cell(spec(f"k{n}", kept="repl"), idle_since=float(9 - n)) for n in range(4)]
    run = FakeRun(spec("other"))
    assert decide([run], cells) == [Retire(cells[3].id)], "its room is the call's when it has torn down"
    cells[3] = cells[3]._replace(state=State.RETIRING)
    assert decide([run], cells) == [], "one is enough"
    cells[3] = cells[3]._replace(state=State.DEAD)
    assert decide([run], cells) == [Spawn(run.spec)]


def test_each_kept_process_that_leaves_makes_room_for_one_call() -> None:
    leaving = cell(spec("k", kept="repl"), State.RETIRING)
    cells = [leaving, *(cell(spec(f"k{n}", kept="repl"), idle_since=float(n)) for n in range(3))]
    assert decide([FakeRun(spec("a")), FakeRun(spec("b"))], cells) == [Retire(cells[1].id)]


def test_another_idle_cell_makes_room_before_a_kept_process_does() -> None:
    cells = [cell(spec(f"k{n}", kept="repl"), idle_since=1.0) for n in range(3)]
    young = cell(spec("young"), idle_since=5.0)
    run = FakeRun(spec("other"))
    assert decide([run], [*cells, young]) == [Retire(young.id), Spawn(run.spec)]


def test_a_kept_process_for_which_a_call_waits_makes_room_last() -> None:
    wanted = cell(spec("k0", kept="repl"), idle_since=1.0)
    others = [cell(spec(f"k{n}", kept="repl"), idle_since=2.0) for n in (1, 2, 3)]
    runs = [FakeRun(spec("other")), FakeRun(spec("k0", kept="repl"), "word")]
    assert decide(runs, [wanted, *others], taken="word") == [Retire(others[0].id)]


def test_kept_processes_have_a_bound_of_their_own_below_that_of_all_cells() -> None:
    assert [Room(cells, 8).kept for cells in (1, 2, 3, 4, 59)] == [1, 1, 2, 3, 44]
    busy = [cell(spec(f"k{n}", kept="repl"), State.BUSY, run=FakeRun(spec())) for n in range(3)]
    kept, plain = FakeRun(spec("other", kept="repl")), FakeRun(spec("other"))
    assert decide([kept], busy) == []
    assert decide([kept, plain], busy) == [Spawn(plain.spec)]
    idle = cell(spec("k", kept="repl"))
    assert decide([kept], [*busy[:2], idle]) == [Retire(idle.id)]


def test_a_session_full_of_kept_processes_ends_one_of_its_own() -> None:
    own = [cell(spec(kept=f"repl{n}"), idle_since=float(n)) for n in range(3)]
    room = Room(cells=40, cells_per_session=3)
    assert decide([FakeRun(spec())], [cell(spec("other", kept="repl")), *own], room) == [Retire(own[0].id)]


def test_a_call_for_which_there_is_no_room_at_all_ends_nothing() -> None:
    own = [cell(spec(), State.BUSY, run=FakeRun(spec())) for _ in range(3)]
    idle = cell(spec("other", kept="repl"))
    assert decide([FakeRun(spec(grants="web")), FakeRun(spec(grants="web"))], [*own, idle]) == []


def test_a_cell_that_makes_room_is_not_given_to_the_call_behind() -> None:
    """One cell is allowed, and the second call that waits is of the retired cell's key."""
    idle = cell(spec("idle"))
    first, second = FakeRun(spec("first")), FakeRun(spec("idle"))
    assert decide([first, second], [idle], Room(cells=1, cells_per_session=1)) == [
        Retire(idle.id),
        Spawn(first.spec),
    ]


def test_doomed_and_dead_cells_do_not_count() -> None:
    run = FakeRun(spec())
    cells = [cell(spec(), State.DYING), cell(spec(), State.DEAD)]
    assert decide([run], cells) == [Spawn(run.spec)]


def test_idle_cells_outlive_their_time_and_busy_ones_do_not() -> None:
    idle, busy = cell(spec(), idle_since=1.0), cell(spec(), State.BUSY, idle_since=1.0)
    assert outlived([idle, busy], now=62.0, idle_s=60.0) == [Retire(idle.id)]


def told(
    run: FakeRun, cells: list[Snapshot], room: Room = ROOM, taken: str = "", now: float = 100.0
) -> tuple[str, float]:
    return obstacle(run, cells, room, set(taken.split()), now)


def test_a_waiting_call_is_told_what_is_full_and_when_the_first_of_it_is_likely_over() -> None:
    own = [cell(spec(), State.BUSY, run=FakeRun(spec(), started_at=100.0 - n)) for n in (4.0, 2.0, 3.0)]
    other = cell(spec("other"), State.BUSY, run=FakeRun(spec("other"), started_at=99.0))
    assert told(FakeRun(spec()), [*own, other]) == ("all 3 cells that the session may have are busy", 2.0)
    assert told(FakeRun(spec()), [*own[:2], other]) == ("all 4 cells that max_cells allows are busy", 1.0)
    soon = cell(spec(), State.BUSY, run=FakeRun(spec(), started_at=0.0, deadline_at=101.5))
    assert told(FakeRun(spec()), [*own[:1], soon, soon]) == ("all 3 cells that the session may have are busy", 1.5)


def test_sessions_take_turns_and_a_running_call_is_a_turn() -> None:
    flood = [FakeRun(spec("flood")) for _ in range(3)]
    quiet = [FakeRun(spec("quiet")) for _ in range(2)]
    assert fairly([*flood, *quiet], []) == [flood[0], quiet[0], flood[1], quiet[1], flood[2]]
    running = cell(spec("quiet"), State.BUSY)
    assert fairly([*flood, *quiet], [running]) == [flood[0], flood[1], quiet[0], flood[2], quiet[1]]


def test_a_session_without_a_cell_is_served_before_one_that_floods() -> None:
    busy = [cell(spec("flood"), State.BUSY) for _ in range(3)]
    free = cell(spec("flood"))
    waiting, quiet = FakeRun(spec("flood")), FakeRun(spec("quiet"))
    assert decide([waiting, quiet], [*busy, free], Room(4, 4)) == [Retire(free.id), Spawn(quiet.spec)]


def test_a_session_keeps_the_cell_that_it_has_just_used_from_sessions_with_as_many() -> None:
    mine = cell(spec("quiet"), idle_since=10.0)
    busy = cell(spec("flood"), State.BUSY)
    run = FakeRun(spec("flood"))
    room = Room(2, 4)
    assert plan([run], [mine, busy], room, set(), 10.0 + HELD_S / 2) == []
    assert plan([run], [mine, busy], room, set(), 10.1 + HELD_S) == [Retire(mine.id), Spawn(run.spec)]
    first = FakeRun(spec("another"))  # has no cell at all
    assert plan([first], [mine, busy], room, set(), 10.0) == [Retire(mine.id), Spawn(first.spec)]
    more = [cell(spec("quiet"), idle_since=10.0) for _ in range(3)]
    assert Retire(more[0].id) in plan([run], [*more, busy], Room(4, 4), set(), 10.0)


def test_a_session_with_cells_leaves_a_place_to_one_that_is_awaited_and_runs_no_call() -> None:
    busy = [cell(spec("flood"), State.BUSY) for _ in range(3)]
    more, first = FakeRun(spec("flood")), FakeRun(spec("other"))

    def found(run: FakeRun, cells: list[Snapshot], awaited: str) -> list[Decision[FakeRun]]:
        return plan([run], cells, Room(4, 4), set(), 100.0, awaited.split())

    assert found(more, busy, "flood") == found(more, busy, "") == [Spawn(more.spec)], "it has no rival"
    assert found(more, busy, "flood quiet") == []
    assert found(first, busy, "flood quiet") == [Spawn(first.spec)], "its only cell"
    quiet = cell(spec("quiet"), idle_since=0.0)
    assert found(more, [*busy, quiet], "flood quiet") == []
    assert found(more, [*busy, quiet], "flood") == [Retire(quiet.id), Spawn(more.spec)]
    working = cell(spec("quiet"), State.BUSY)
    assert found(more, [*busy[1:], working], "flood quiet") == [Spawn(more.spec)], "it runs its call"


def test_a_session_without_running_calls_gets_a_cell_in_a_pool_of_two() -> None:
    """Otherwise its call would wait for as long as the other session is awaited."""
    run, other = FakeRun(spec("slow", grants="read write")), ["slow", "quiet"]
    for idle in (cell(spec("slow")), cell(spec("slow", kept="repl"))):
        assert plan([run], [idle], Room(2, 2), set(), 100.0, other) == [Spawn(run.spec)]


def test_a_session_evicts_its_own_idle_cell_to_leave_a_place_but_no_kept_process() -> None:
    run, awaited = FakeRun(spec("slow", grants="read write")), ["slow", "quiet"]
    busy, idle, kept = cell(spec("slow"), State.BUSY), cell(spec("slow")), cell(spec("slow", kept="repl"))
    assert plan([run], [busy, idle], Room(3, 3), set(), 100.0, awaited) == [Retire(idle.id), Spawn(run.spec)]
    assert plan([run], [busy, kept], Room(3, 3), set(), 100.0, awaited) == []


def test_a_session_leaves_two_places_to_more_sessions_than_one() -> None:
    """One that begins to flood the pool, too, would take the place of the quiet one."""
    busy = [cell(spec("flood"), State.BUSY) for _ in range(2)]
    idle = [cell(spec("second")), cell(spec("quiet"))]
    more = FakeRun(spec("flood"))
    assert plan([more], [*busy, *idle], Room(4, 4), set(), 100.0, ["flood", "second", "quiet"]) == []
    assert plan([more], [*busy, *idle], Room(5, 5), set(), 100.0, ["flood", "second", "quiet"]) == [Spawn(more.spec)]


def test_a_cell_gives_way_if_its_session_has_left_no_place() -> None:
    kept = cell(spec("flood", kept="repl"))
    mine, busy = cell(spec("flood")), [cell(spec("flood"), State.BUSY) for _ in range(2)]
    other, idle = cell(spec("other"), State.BUSY), cell(spec("other"))
    awaited = ["flood", "other", "quiet"]

    def gives(cell: Snapshot, *others: Snapshot, awaited: list[str] = awaited, waiting: str = "flood") -> bool:
        return gives_way(cell, [cell, *others], ROOM, awaited, {waiting})

    assert gives(mine, *busy, other)
    assert not gives(mine, *busy, other, awaited=["flood", "other"])
    assert not gives(kept, *busy, other), "its state would be lost"
    assert gives(mine, *busy) and not gives(mine, *busy, awaited=["flood", "quiet"]), "there is room for one cell"
    assert not gives(other, *busy, mine), "its only cell"
    assert not gives(mine, *busy, idle, awaited=["flood", "other"])
    assert gives(mine, *busy, idle, waiting="other"), "it needs its cell itself"


def test_floods_leave_places_in_the_queue_to_a_session_without_waiting_calls() -> None:
    for floods in (1, 2, 10, 100):
        own = [0] * floods
        for _ in range(1000):
            for flood in range(floods):
                own[flood] += may_queue(own[flood], sum(own), 1000)
        assert min(own) > 0 and max(own) - min(own) <= 1, floods
        assert sum(own) < 1000 and may_queue(0, sum(own), 1000), floods
    assert may_queue(0, 999, 1000) and not may_queue(1, 999, 1000) and not may_queue(0, 1000, 1000)


def test_calls_in_a_row_count_once_for_a_call_that_overtakes_them() -> None:
    writes = [FakeRun(spec(), exclusive="w") for _ in range(9)]
    kept = [FakeRun(spec(kept="repl")) for _ in range(9)]
    reads = [FakeRun(spec()) for _ in range(2)]
    queues = {"s": [*writes, *kept, *reads]}
    assert behind(FakeRun(spec()), queues) == {"s": [writes[0], kept[0], *reads]}
    assert behind(FakeRun(spec(), exclusive="w"), queues) == {"s": [*writes, kept[0], *reads]}
    assert behind(FakeRun(spec(kept="repl")), queues) == {"s": [writes[0], *kept, *reads]}


def test_a_long_queue_is_looked_at_as_far_as_its_calls_can_be_next() -> None:
    same, other = spec(), spec(grants="write")
    runs = [FakeRun(same) for _ in range(5)] + [FakeRun(other), FakeRun(same, "word"), FakeRun(same, "word")]
    assert foremost(runs, 3) == [*runs[:3], *runs[5:]]
    assert foremost(runs, 1) == [runs[0], runs[5], runs[6]]
