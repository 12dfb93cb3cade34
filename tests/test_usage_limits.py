"""Usage limits: what is added up, by session and above it, and what is reached."""

import math
from collections.abc import Callable

import pytest

from toolcell import Concurrency, SessionUsage, UsageError, UsageLimits
from toolcell.rules.limits import UsageMeter


def test_what_a_child_uses_counts_for_the_sessions_above_it() -> None:
    top = UsageMeter(UsageLimits(calls=3, wall_s=10))
    child = UsageMeter(UsageLimits(calls=2, cpu_s=1), top)
    assert child.begin() == child.begin() == ""
    assert child.begin() == "calls = 2" and top.begin() == "" and top.begin() == "calls = 3"
    child.add(cpu_s=0.5, wall_s=4.0, bytes=10)
    top.add(cpu_s=1.0, wall_s=1.0, bytes=5)
    assert child.usage == SessionUsage(calls=2, cpu_s=0.5, wall_s=4.0, bytes=10)
    assert top.usage == SessionUsage(calls=3, cpu_s=1.5, wall_s=5.0, bytes=15)
    assert child.wall_left_s() == 5.0 and UsageMeter(UsageLimits()).wall_left_s() == math.inf


def test_a_child_is_refused_for_the_limit_of_its_parent_and_counts_nothing() -> None:
    top = UsageMeter(UsageLimits(bytes=10))
    child = UsageMeter(UsageLimits(calls=5), top)
    top.add(cpu_s=0, wall_s=0, bytes=10)
    assert child.begin() == "bytes = 10" and child.usage.calls == 0


def test_a_call_that_was_not_run_is_taken_back_in_every_session_above() -> None:
    top = UsageMeter(UsageLimits(calls=1))
    child = UsageMeter(UsageLimits(), top)
    assert child.begin() == "" and child.begin() == "calls = 1"
    child.take_back()
    assert child.usage.calls == top.usage.calls == 0 and top.begin() == ""


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: UsageLimits(calls=0),
        lambda: UsageLimits(cpu_s=-1.0),
        lambda: UsageLimits(wall_s=math.nan),
        lambda: UsageLimits(bytes=True),
        lambda: UsageLimits(bytes="10"),  # type: ignore[arg-type]
        lambda: Concurrency(tools={"a": 0}),
        lambda: Concurrency(kinds={"wroker": 1}),  # type: ignore[dict-item]
        lambda: Concurrency(tools=[]),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_limit_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        wrong()
