"""The table of a cell's life, without any cell: its picture, its rules, and events in any order."""

import ast
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolcell.pool.cell as package
from toolcell.pool.cell import state as module
from toolcell.pool.cell.state import (
    AT_WORK,
    ENDING,
    IDLE,
    NOT_READY,
    TABLE,
    UNKNOWN,
    WITH_CALL,
    Action,
    Event,
    Impossible,
    State,
    Stateful,
)

LIVING = sorted(set(State) - {State.DEAD}, key=lambda state: state.value)
ACTIONS = [actions for _state, actions in TABLE.values()]


def picture() -> set[tuple[State, Event, State]]:
    """What the lines of the docstring say: `STATE ─ event, event → STATE · event → STATE`."""
    drawn: set[tuple[State, Event, State]] = set()
    assert module.__doc__ is not None
    for line in re.findall(r"^    ([A-Z]+) ─ (.*)$", module.__doc__, re.MULTILINE):
        for part in line[1].split(" · "):
            events, _, following = part.partition(" → ")
            for event in events.split(", "):
                arrow = State[line[0]], Event(event), State[following]
                assert arrow not in drawn, f"{arrow} is drawn twice"
                drawn.add(arrow)
    return drawn


def test_the_picture_is_the_table() -> None:
    table = {(state, event, following) for (state, event), (following, _) in TABLE.items() if state is not following}
    assert picture() == table


def test_every_event_and_every_action_has_a_row() -> None:
    assert {event for _state, event in TABLE} == set(Event)
    assert {action for actions in ACTIONS for action in actions} == set(Action)


def test_no_module_but_that_of_the_table_sets_a_state() -> None:
    (folder,) = package.__path__
    for path in Path(folder).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in ("state", "_state"):
                assert path.name == "state.py", f"{path.name}:{node.lineno}"


def test_dead_is_final() -> None:
    assert {following for (state, _), (following, _) in TABLE.items() if state is State.DEAD} == {State.DEAD}


def test_every_state_is_reached() -> None:
    reached, found = set[State](), {State.SPAWNING}
    while found - reached:
        reached |= found
        found = {following for (state, _), (following, _) in TABLE.items() if state in reached} | reached
    assert reached == set(State)


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
def test_a_cell_in_any_state_can_be_killed_and_dies_of_it(state: State) -> None:
    following, _ = TABLE[state, Event.KILLED]
    while following is not State.DEAD:
        assert following in ENDING
        event = Event.DIED if (following, Event.DIED) in TABLE else Event.SPAWNED
        following, _ = TABLE[following, event]


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
def test_the_end_of_an_init_that_is_known_is_the_end_of_the_cell(state: State) -> None:
    assert (TABLE.get((state, Event.DIED), (None,))[0] is State.DEAD) is (state not in UNKNOWN)
    assert ((state, Event.SPAWNED) in TABLE) is (state in UNKNOWN)


def test_a_call_is_assigned_where_one_is_awaited_and_nowhere_else() -> None:
    assert [state for state, event in TABLE if event is Event.ASSIGNED] == [State.READY]
    offering = {following for following, actions in TABLE.values() if Action.OFFER in actions}
    assert offering == IDLE == {State.READY, State.UNBOUND}


def test_a_call_is_concluded_as_its_states_are_left_and_only_then() -> None:
    for (state, event), (following, actions) in TABLE.items():
        leaves = state in WITH_CALL and following not in WITH_CALL
        assert actions.count(Action.CONCLUDE) == leaves, (state, event)
        enters = state not in WITH_CALL and following in WITH_CALL
        assert enters is (event is Event.ASSIGNED), (state, event)


def test_a_cell_is_buried_once() -> None:
    for (state, event), (following, actions) in TABLE.items():
        dies = state is not State.DEAD and following is State.DEAD
        assert actions.count(Action.BURY) == dies, (state, event)
        assert Action.BURY not in actions or actions[-1] is Action.BURY, (state, event)


def test_whoever_is_killed_is_known_by_then() -> None:
    """There is a pidfd: the zygote's word has come, or comes with this event."""
    for (state, event), (following, actions) in TABLE.items():
        if Action.KILL_INIT in actions:
            assert following not in UNKNOWN, (state, event)
            assert state not in UNKNOWN or event is Event.SPAWNED, (state, event)


def test_the_names_for_several_states_agree_with_the_table() -> None:
    assert WITH_CALL < AT_WORK and not NOT_READY & ENDING and not IDLE & ENDING
    assert {following for (state, _), (following, _) in TABLE.items() if state in ENDING} <= ENDING
    ended = {TABLE[state, event][0] for state, event in TABLE if event in (Event.KILLED, Event.ORPHANED, Event.DIED)}
    assert ended | {State.RETIRING} == ENDING


def test_a_prewarmed_cell_whose_call_process_dies_is_never_offered_again() -> None:
    """Once, such a cell was swept, and a session that claimed it meanwhile waited for ever."""
    for state in (State.UNBOUND, State.BINDING):
        following, actions = TABLE[state, Event.EXITED]
        assert following in ENDING and Action.KILL_INIT in actions
    assert (State.SWEEPING, Event.CLAIMED) not in TABLE


def test_what_cannot_happen_is_refused_and_changes_nothing() -> None:
    machine = Stateful()
    with pytest.raises(Impossible, match="'assigned' cannot happen to a cell that is spawning"):
        machine.on(Event.ASSIGNED)
    assert machine.state is State.SPAWNING


def walk(choices: list[int]) -> Iterator[tuple[State, Event, State, tuple[Action, ...]]]:
    """One life: each number chooses among the events that can happen."""
    cell, done = Stateful(), list[Action]()
    cell._do = {action: partial(done.append, action) for action in Action}
    for choice in choices:
        before = cell.state
        possible = [event for event in Event if cell.takes(event)]
        event = possible[choice % len(possible)]
        done.clear()
        cell.on(event)
        yield before, event, cell.state, tuple(done)


@given(st.lists(st.integers(0, 10**6), max_size=200))
def test_in_any_order_of_events_each_call_is_concluded_once_and_each_cell_buried_once(choices: list[int]) -> None:
    under_way = buried = 0
    for _before, event, state, actions in walk(choices):
        under_way += event is Event.ASSIGNED
        assert under_way <= 1
        for action in actions:
            under_way -= action is Action.CONCLUDE
            buried += action is Action.BURY
        assert under_way == (state in WITH_CALL)
        assert buried == (state is State.DEAD)


@given(st.lists(st.integers(0, 10**6), max_size=200))
def test_in_any_order_of_events_a_cell_that_ends_has_no_further_call(choices: list[int]) -> None:
    ending = False
    for before, event, state, actions in walk(choices):
        ending = ending or before in ENDING
        if ending:
            assert state in ENDING and event is not Event.ASSIGNED and Action.OFFER not in actions


@pytest.mark.parametrize("state", State)
def test_what_the_pool_asks_about_a_cell_follows_from_its_state(state: State) -> None:
    cell = Stateful()
    cell.state = state
    assert (cell.state, cell.free) == (state, state is State.READY)
    asked = (cell.idle, cell.starting, cell.doomed, cell.at_work)
    assert asked == tuple(state in states for states in (IDLE, NOT_READY, ENDING, AT_WORK))
