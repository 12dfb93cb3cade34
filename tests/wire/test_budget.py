"""Byte budgets: who may have how much, who waits, and who is next."""

import sys
from functools import partial
from typing import Any

import pytest

from toolcell.wire.budget import MOST_VALUES, Account, Ask, Budgets, ByteBudget, is_beyond, memory_of, oldest_beyond


class Asked:
    """What an account was asked for, in order, and what was given of it."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def __call__(self, account: Account, bytes: int, name: str) -> Ask:
        ask = account.ask(bytes, lambda: self.given.append(name))
        assert (ask.charge is not None) == (name not in self.given and account.asks.count(ask) == 0)
        return ask


def budget(limit: int = 100, per_call: int = 60, reserve: int = 10) -> ByteBudget:
    return ByteBudget(limit, per_call=per_call, reserve=reserve)


def test_a_reserve_is_the_calls_own_and_the_rest_is_drawn_on_the_budget() -> None:
    all = budget()
    one = all.account()
    charge = one.charge(8)
    assert (one.used, all.drawn) == (8, 0)
    charge.change(25)
    assert (one.used, all.drawn) == (25, 15)
    charge.change(9)
    assert (one.used, all.drawn) == (9, 0)
    charge.release()
    charge.release()
    assert (one.used, all.drawn) == (0, 0)


def test_a_call_gets_no_more_than_its_own_limit_and_the_rest_as_it_is_released() -> None:
    asked, one = Asked(), budget(1000).account()
    first = asked(one, 40, "first")
    asked(one, 30, "second")
    asked(one, 1, "third")  # there would be room, and it is not its turn
    assert asked.given == [] and one.used == 40
    first.end()
    assert asked.given == ["second", "third"] and one.used == 31


def test_a_call_with_nothing_else_may_have_any_number_of_bytes_where_nobody_has_any() -> None:
    asked, all = Asked(), budget(100, per_call=60)
    one = all.account()
    ask = asked(one, 500, "one")
    assert ask.charge is not None and all.drawn == 490
    other = all.account()
    assert asked(other, 10, "small").charge is not None  # its reserve
    assert asked(other, 1, "share").charge is None
    ask.end()
    assert asked.given == ["share"] and all.drawn == 1


def test_no_call_may_draw_more_than_it_leaves() -> None:
    all, taken = budget(100, per_call=1000, reserve=0), list[int]()
    for _ in range(10):
        account, bytes = all.account(), 0
        while account.has_room(1):
            account.charge(1)
            bytes += 1
        taken.append(bytes)
    assert taken[:4] == [50, 25, 12, 6] and all.drawn < 100


def test_whoever_waits_for_a_share_is_not_overtaken_but_by_what_a_reserve_holds() -> None:
    asked, all = Asked(), budget(100, per_call=1000)
    holder, large, small = all.account(), all.account(), all.account()
    held = asked(holder, 55, "holder")
    asked(large, 60, "large")
    assert asked(small, 10, "reserve").charge is not None
    assert asked(small, 1, "small").charge is None and not small.has_room(1) and small.room == 0
    held.end()
    assert asked.given == ["large", "small"]


def test_a_call_at_its_own_limit_holds_up_nobody_else() -> None:
    asked, all = Asked(), budget(100, per_call=30)
    greedy, other = all.account(), all.account()
    held = asked(greedy, 30, "greedy")
    asked(greedy, 5, "more")
    assert not all.is_short
    assert asked(other, 30, "other").charge is not None
    held.end()
    assert asked.given == ["more"]


def test_who_withdraws_makes_room_for_the_next() -> None:
    asked, all = Asked(), budget(100, per_call=1000, reserve=0)
    holder, large, small = all.account(), all.account(), all.account()
    asked(holder, 40, "holder")
    waiting = asked(large, 45, "large")
    asked(small, 5, "small")
    waiting.end()
    assert asked.given == ["small"] and not large.asks and not all.is_short


def test_what_is_charged_stays_until_it_is_released_also_where_it_was_too_much() -> None:
    all = budget()
    one = all.account()
    charge = one.charge(500)
    assert not one.has_room(1) and one.room == 0 and all.drawn == 490
    charge.release()
    assert one.has_room(1) and all.drawn == 0


def test_whoever_is_given_room_may_give_it_back_at_once() -> None:
    all = budget(20, per_call=100, reserve=0)
    asks, given = list[Ask](), list[int]()

    def give_back(number: int) -> None:
        given.append(number)
        asks[number].end()

    held = all.account().charge(20)
    for number in range(5):
        asks.append(all.account().ask(8, partial(give_back, number)))
    held.release()
    assert given == [0, 1, 2, 3, 4] and all.drawn == 0 and not all.is_short


def test_a_result_of_any_legal_size_has_room_and_leaves_as_much() -> None:
    budgets = Budgets()
    budgets.expect(500_000_000)
    one, two = (budgets.frames.account().ask(500_000_000, lambda: None) for _ in range(2))
    assert one.charge is not None and two.charge is None
    assert budgets.frames.account().ask(250_000_000, lambda: None).charge is None  # behind the one that waits


@pytest.mark.parametrize(
    "value", [None, 1, "x" * 1000, "\U0001f600" + "x" * 1000, b"x", [1, 2, ["a"]], {"a": {"b": []}}]
)
def test_the_memory_of_a_value_is_that_of_all_that_is_in_it(value: object) -> None:
    def all_of(value: Any) -> int:
        inside: list[Any] = []
        size = sys.getsizeof(value)
        if isinstance(value, dict):
            inside = [*value, *value.values()]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        elif isinstance(value, list):
            inside = value  # pyright: ignore[reportUnknownVariableType]
        return size + sum(all_of(each) for each in inside)

    assert memory_of(value) == all_of(value)


def test_where_a_call_waits_for_a_share_the_others_have_room_for_their_reserve_and_no_byte_more() -> None:
    asked, all = Asked(), budget(100, per_call=60, reserve=10)
    for _ in range(2):
        all.account().charge(60)
    waits, fresh = all.account(), all.account()
    waits.charge(10)
    assert asked(waits, 20, "waits").charge is None and all.is_short
    assert (waits.room, fresh.room) == (0, 10)


def test_a_greedy_owner_leaves_every_other_a_share_and_its_reserve() -> None:
    budget = ByteBudget(100, per_call=sys.maxsize, reserve=10)
    held = [budget.hold("greedy", 20) for _ in range(5)]
    assert [each is not None for each in held] == [True, True, True, False, False], "50, and its reserve"
    quiet = [budget.hold("quiet", 5), budget.hold("quiet", 5), budget.hold("quiet", 25), budget.hold("quiet", 5)]
    assert [each is not None for each in quiet] == [True, True, True, False]
    for each in [*held, *quiet]:
        if each is not None:
            each.release()
    large = budget.hold("greedy", 1_000)
    assert budget.drawn == 990 and large is not None, "whoever is alone may have one of any size"


@pytest.mark.parametrize(
    ("value", "beyond"),
    [
        (list(range(MOST_VALUES)), False),
        (list(range(MOST_VALUES + 1)), True),
        ({str(number): [number] for number in range(MOST_VALUES // 2)}, False),
        ({str(number): [number] for number in range(MOST_VALUES // 2 + 1)}, True),
        ({"a": "x" * 99, "b": ["x" * 10]}, True),
        (object(), False),
    ],
)
def test_a_value_is_beyond_the_arguments_of_a_call_by_its_values_or_characters(value: object, beyond: bool) -> None:
    assert is_beyond(value, 100_000 if isinstance(value, dict) and len(value) > 2 else 100) is beyond


def test_the_oldest_are_dropped_by_number_or_bytes_and_never_the_newest() -> None:
    sizes = {"a": 10, "b": 10, "c": 10}
    assert oldest_beyond(sizes, 3, 30) == [] and oldest_beyond(sizes, 2, 30) == ["a"]
    assert oldest_beyond(sizes, 3, 19) == ["a", "b"] == oldest_beyond(sizes, 3, 0)
