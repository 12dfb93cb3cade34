"""The share of the cores of a session with many running calls."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slices import HAS_SLICES, slice_of

from toolcell.pool.rivals import (
    LEAST_CORES,
    MOST_NICE,
    RIVAL_S,
    SLICE_NS,
    STOP_S,
    CoreUse,
    Rivals,
    lower,
    may_undo,
    next_power_of_2,
    nice_of,
    renice,
    take_back,
)


def test_a_session_alone_has_no_rival() -> None:
    rivals = Rivals()
    rivals.note("a", 1.0)
    rivals.note("a", 1.1)
    assert not rivals.has("a", 1.1)
    assert rivals.has("b", 1.1)


def test_two_sessions_that_take_turns_are_rivals_until_one_has_been_silent() -> None:
    rivals = Rivals()
    for session, at in (("a", 1.0), ("b", 1.1), ("a", 1.2)):
        rivals.note(session, at)
    assert rivals.has("a", 1.2)
    assert rivals.has("b", 1.2)
    assert not rivals.has("a", 1.1 + RIVAL_S + 0.01)
    assert rivals.has("b", 1.1 + RIVAL_S + 0.01)


def test_the_callers_are_the_sessions_with_a_call_in_the_last_second() -> None:
    rivals = Rivals()
    assert rivals.callers(0.0) == set()
    for session, at in (("a", 1.0), ("b", 1.5), ("c", 1.6)):
        rivals.note(session, at)
    rivals.note("c", 1.9)  # the time of the last session is not in `seen`
    assert rivals.callers(1.9) == {"a", "b", "c"}
    assert rivals.callers(1.5 + RIVAL_S) == {"c"}
    assert rivals.callers(1.9 + RIVAL_S) == set()
    rivals.forget("c")
    assert rivals.callers(1.9) == {"a", "b"}


def test_a_session_that_is_closed_is_forgotten_also_if_it_made_the_last_call() -> None:
    """Else another session would leave a place to it for a minute."""
    rivals = Rivals()
    rivals.note("a", 1.0)
    rivals.forget("a")
    rivals.note("b", 1.1)
    assert set(rivals.seen) == {"b"} and rivals.callers(1.1) == {"b"}
    rivals.forget("b")
    rivals.note("b", 1.2)  # it was parked
    assert set(rivals.seen) == {"b"} and rivals.callers(1.2) == {"b"}


def test_a_session_that_uses_much_more_time_than_another_yields() -> None:
    use = CoreUse()
    many = [(1, "flood", 100.0), (2, "flood", 50.0), (3, "quiet", 7.0), (4, "other", 1.0)]
    use.look({"flood", "quiet", "other"}, many, 10.0)
    assert not use.yielding, "nothing is known yet: the counters have what earlier sessions used"
    later = [(1, "flood", 100.03), (2, "flood", 50.03), (3, "quiet", 7.01), (4, "other", 1.015)]
    use.look({"flood", "quiet", "other"}, later, 10.05)
    assert use.yielding == {"flood"}
    use.look({"flood", "quiet", "other"}, [(1, "flood", 100.05), (5, "other", 9.0)], 10.10)
    assert use.yielding == {"flood"}, "a session without cells has used nothing, nor has a new cell"


def test_a_session_that_got_no_core_or_uses_little_does_not_yield() -> None:
    use = CoreUse()
    use.look({"a", "b"}, [(1, "a", 0.0), (2, "b", 0.0)], 1.0)
    use.look({"a", "b"}, [(1, "a", 0.05), (2, "b", 0.0)], 1.05)
    assert use.yielding == {"a"}
    use.look({"a", "b"}, [(1, "a", 0.0505), (2, "b", 0.01)], 1.10)
    assert not use.yielding, "other programs had the cores, or it slept"
    use.look({"a", "b"}, [(1, "a", 0.0905), (2, "b", 0.01)], 1.15)
    assert use.yielding == {"a"}


def test_two_sessions_that_compute_take_turns_at_most() -> None:
    """Each yields only while it is ahead by more than twice."""
    use, cpu = CoreUse(), {"a": 0.0, "b": 0.0}
    for number in range(100):
        first = "b" if "a" in use.yielding else "a"
        cpu[first] += 0.04
        cpu["b" if first == "a" else "a"] += 0.01
        use.look({"a", "b"}, [(1, "a", cpu["a"]), (2, "b", cpu["b"])], number * 0.05)
    assert 0.4 < cpu["a"] / cpu["b"] < 2.5


def test_a_session_with_many_calls_does_not_starve_one_with_a_single_call_beside_one_that_sleeps() -> None:
    """The kernel gives groups that yield the same weight. So eight calls beside one would get eight ninths."""
    use, cpu = CoreUse(), {"many": 0.0, "one": 0.0, "sleeps": 0.0}
    yielded = 0
    for number in range(200):
        part = {
            frozenset[str](): 1 / 2,  # the calls of a session have the weight of one
            frozenset({"many", "one"}): 8 / 9,
            frozenset({"many"}): 0.1,
            frozenset({"one"}): 0.9,
        }[use.yielding]
        yielded += bool(use.yielding)
        cpu["many"] += 0.1 * part
        cpu["one"] += 0.1 * (1 - part)
        use.look(cpu.keys(), [(id, each, cpu_s) for id, (each, cpu_s) in enumerate(cpu.items())], number * 0.05)
    assert 0.4 < cpu["many"] / cpu["one"] < 2.5
    assert yielded > 190, "the one that sleeps comes first at all times"


def test_what_a_cell_uses_counts_from_its_start_until_its_end() -> None:
    """Its counter has what earlier cells have used."""
    use = CoreUse()
    use.look({"a", "b"}, [], 1.0)
    use.begin(7, 3.0)
    use.end(7, "a", 3.0)
    use.begin(8, 3.0)
    use.look({"a", "b"}, [(8, "b", 3.0)], 1.05)
    assert not use.yielding
    use.begin(9, 3.0)
    use.end(9, "a", 3.01)
    use.end(8, "b", 3.04)
    use.begin(10, 5.0)
    use.look({"a", "b"}, [(10, "b", 5.01)], 1.10)
    assert use.yielding == {"b"}
    use.look({"a", "b"}, [(10, "b", 5.01)], 1.15)
    assert not use.yielding


def test_nobody_yields_to_a_session_that_makes_no_calls_any_more() -> None:
    use = CoreUse()
    use.look({"a", "b"}, [(1, "a", 0.0)], 1.0)
    use.look({"a", "b"}, [(1, "a", 0.05)], 1.05)
    assert use.yielding == {"a"}
    use.look({"a"}, [(1, "a", 0.10)], 1.10)
    assert not use.yielding
    use.look({"a", "b"}, [(1, "a", 9.0)], 9.0)
    assert not use.yielding, "what it used in a pause does not count"


def test_a_session_that_computed_alone_yields_as_soon_as_another_one_makes_a_call() -> None:
    use = CoreUse()
    use.look({"a"}, [(1, "a", 3.0)], 1.0)
    use.look({"a"}, [(1, "a", 3.05)], 1.05)
    assert not use.yielding
    assert use.may_change(1.06)
    use.compare({"a", "b"}, 1.06)
    assert use.yielding == {"a"} and not use.may_change(1.07) and use.may_change(9.0)
    use.look({"a"}, [(1, "a", 3.0501)], 1.10)
    use.compare({"a", "b"}, 1.11)
    assert not use.yielding, "it sleeps now"


def test_nothing_that_was_used_before_or_in_a_pause_counts_after_it() -> None:
    use = CoreUse()
    use.look({"a", "b"}, [(1, "a", 0.0), (2, "a", 0.0), (3, "b", 0.0)], 1.0)
    use.look({"a", "b"}, [(1, "a", 9.0), (2, "a", 9.0), (3, "b", 0.01)], 1.05)
    use.compare({"a", "b"}, 600.0)
    assert not use.yielding, "it computed ten minutes ago"
    use.end(2, "a", 99.0)  # an idle kept process
    use.look({"a", "b"}, [(1, "a", 9.0), (3, "b", 0.01)], 600.05)
    use.look({"a", "b"}, [(1, "a", 9.03), (3, "b", 0.05)], 600.10)
    assert not use.yielding


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data(), st.booleans())
def test_whatever_is_seen_never_do_all_yield_and_none_that_uses_little(data: st.DataObject, keep: bool) -> None:
    """Also with counters that stand still or fall, looks at the same time, and cells that come and go."""
    names, use, now, looked_at = ("a", "b", "c", "d"), CoreUse(), 0.0, 0.0
    cpu, of = dict[int, float](), dict[int, str]()
    most = defaultdict[str, float](float)  # seconds that may count at the next look
    use.keep_weights = keep
    for number in range(data.draw(st.integers(1, 20))):
        action = data.draw(st.sampled_from(["look", "look", "look", "compare", "begin", "end"]))
        if action == "begin":
            cpu[number], of[number] = data.draw(st.sampled_from([0.0, 7.0])), data.draw(st.sampled_from(names))
            use.begin(number, cpu[number])
        elif action == "end" and cpu:
            id = data.draw(st.sampled_from(sorted(cpu)))
            used, session_id = data.draw(st.sampled_from([-1.0, 0.0, 0.01, 5.0])), of.pop(id)
            most[session_id] += max(0.0, used)
            use.end(id, session_id, cpu.pop(id) + used)
        else:
            callers = data.draw(st.sets(st.sampled_from(names)))
            now += data.draw(st.sampled_from([0.0, 0.001, 0.05, 0.05, 0.9, 1.5, 600.0]))
            before = use.yielding
            if action == "compare":
                use.compare(callers, now)
            else:
                for id in cpu:
                    used = data.draw(st.sampled_from([-3.0, 0.0, 0.01, 0.05, 0.3]))
                    cpu[id] += used
                    most[of[id]] += max(0.0, used)
                use.look(callers, [(id, of[id], cpu[id]) for id in cpu if of[id] in callers], now)
                begun = use.yielding - before if keep else use.yielding
                assert all(most[each] > 0.99 * LEAST_CORES * (now - looked_at) for each in begun)
                assert all(use._of_late[each] > STOP_S for each in use.yielding - begun)
                assert use._of_late.keys() <= callers and use._before.keys() <= cpu.keys() and not use._of_ended
                looked_at = now
                most.clear()
            assert use.yielding <= callers and (not callers or use.yielding < callers)


def test_a_call_that_is_made_again_moves_no_time_backwards() -> None:
    rivals = Rivals()
    rivals.note("a", 5.0)
    assert rivals.note("b", 1.0)
    assert rivals.has("a", 5.5) and rivals.callers(5.5) == {"a", "b"}
    assert not rivals.note("b", 5.6)


def test_groups_that_keep_their_weights_yield_together() -> None:
    """They cannot starve each other."""
    for keep in (True, False):
        use = CoreUse()
        use.keep_weights = keep
        cells = [(1, "much", 0.0), (2, "more", 0.0), (3, "quiet", 0.0)]
        use.look({"much", "more", "quiet"}, cells, 1.0)
        use.look({"much", "more", "quiet"}, [(1, "much", 0.015), (2, "more", 0.05), (3, "quiet", 0.001)], 1.05)
        assert use.yielding == ({"much", "more"} if keep else {"more"})


def test_a_session_that_leaves_a_core_alone_does_so_until_it_has_used_less_than_the_other_one() -> None:
    """It uses less because of that. Beside others, it may even wait for some looks."""
    use, many = CoreUse(), 0.1
    use.keep_weights = True
    use.look({"many", "quiet"}, [(1, "many", 0.0), (2, "quiet", 0.0)], 1.0)
    use.look({"many", "quiet"}, [(1, "many", many), (2, "quiet", 0.01)], 1.05)
    assert use.yielding == {"many"}
    for number in range(2, 9):
        many += (0.0, 0.05)[number % 2]  # it has a core at every other look
        use.look({"many", "quiet"}, [(1, "many", many), (2, "quiet", 0.01 * number)], 1.0 + 0.05 * number)
        assert use.yielding == {"many"}
    for number in range(9, 14):
        use.look({"many", "quiet"}, [(1, "many", many), (2, "quiet", 0.01 * number)], 1.0 + 0.05 * number)
    assert not use.yielding
    use.look({"many", "asleep"}, [(1, "many", many)], 1.7)
    for number in range(4):
        many += 0.025
        use.look({"many", "asleep"}, [(1, "many", many)], 1.75 + 0.05 * number)
    assert use.yielding == {"many"}
    for number in range(10):
        use.look({"many", "asleep"}, [(1, "many", many)], 1.95 + 0.05 * number)
    assert not use.yielding, "it uses nothing any more"


def test_a_session_is_a_new_rival_after_a_pause() -> None:
    rivals = Rivals()
    assert rivals.note("a", 1.0) and not rivals.note("a", 1.5) and not rivals.note("a", 2.4)
    assert rivals.note("b", 2.5) and not rivals.note("a", 2.6) and not rivals.note("b", 2.7)
    assert rivals.note("a", 3.6), "it was the last but one"
    assert rivals.note("b", 3.8)
    assert rivals.note("b", 4.8), "it was the last"


def test_a_weight_is_changed_at_powers_of_two() -> None:
    assert [next_power_of_2(calls) for calls in (1, 2, 3, 4, 5, 8, 9)] == [1, 2, 4, 4, 8, 8, 16]


@pytest.mark.parametrize("running", [2, 4, 8, 14])
def test_the_weights_of_many_calls_add_up_to_about_that_of_one_process(running: int) -> None:
    assert 0.8 < 2 * running / 1.25 ** nice_of(running) < 1.25


def test_one_call_keeps_its_weight_and_no_call_loses_all_of_it() -> None:
    assert nice_of(1) == 0
    assert nice_of(10_000) == MOST_NICE


def test_a_process_is_niced_with_its_scheduling_group_once_it_has_one() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    leader = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        assert not lower(child.pid, 5)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert lower(leader.pid, 5)
        assert os.getpriority(os.PRIO_PROCESS, leader.pid) == 5
        assert slice_of(leader.pid) == SLICE_NS or not HAS_SLICES
        group = Path(f"/proc/{leader.pid}/autogroup")
        assert not group.exists() or os.geteuid() or group.read_text().endswith("nice 5\n")
        if os.geteuid() == 0:
            assert lower(leader.pid, 2, before=7) and os.getpriority(os.PRIO_PROCESS, leader.pid) == 5, "its own value"
            assert lower(leader.pid, 0, before=5)
            assert os.getpriority(os.PRIO_PROCESS, leader.pid) == os.getpriority(os.PRIO_PROCESS, 0)
            assert slice_of(leader.pid) == slice_of(child.pid)
            assert not group.exists() or group.read_text().endswith("nice 0\n")
    finally:
        for each in (child, leader):
            each.communicate(b"\n")


def test_a_nice_value_that_a_child_has_inherited_is_taken_back_and_its_own_is_not() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        assert renice(parent.pid, 7) == may_undo() == (os.geteuid() == 0)
        assert os.getpriority(os.PRIO_PROCESS, parent.pid) == max(own, 7 if may_undo() else own)
        assert slice_of(parent.pid) == (SLICE_NS if may_undo() and HAS_SLICES else slice_of(0))
        take_back(parent.pid, 7)
        assert os.getpriority(os.PRIO_PROCESS, parent.pid) == own
        assert slice_of(parent.pid) == slice_of(0)
        if may_undo():
            os.setpriority(os.PRIO_PROCESS, parent.pid, own + 3)
            take_back(parent.pid, 7)
            assert os.getpriority(os.PRIO_PROCESS, parent.pid) == own + 3, "its own"
        parent.communicate(b"\n")


def test_sessions_that_were_silent_for_long_are_forgotten() -> None:
    rivals = Rivals()
    for session, at in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        rivals.note(session, at)
    assert list(rivals.seen) == ["a", "b", "c"]
    assert rivals.forget_before(1.5) and not rivals.forget_before(1.5)
    rivals.forget("b")
    assert list(rivals.seen) == ["c"] and not rivals.forget_before(10.0), "the last one"
