"""The waits between attempts, and what is repeated, without any call."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell import Crashed, ExecutionError, Overloaded, Timeout, ToolError, ToolResult, UsageError
from toolcell.runtime.retrying import repeated, waits

pytestmark = pytest.mark.anyio


@given(first=st.floats(0.001, 10), longest=st.floats(0.001, 100))
def test_the_bound_of_the_waits_doubles_up_to_the_longest(first: float, longest: float) -> None:
    bounds = list(itertools.islice(waits(first, longest, draw=lambda _least, most: most), 12))
    assert bounds[0] == first
    assert all(later == min(longest, 2 * earlier) for earlier, later in itertools.pairwise(bounds))


@given(first=st.floats(0.001, 10))
def test_a_wait_is_a_random_part_of_its_bound(first: float) -> None:
    drawn = list(itertools.islice(waits(first, 10.0), 12))
    bounds = itertools.islice(waits(first, 10.0, draw=max), 12)
    assert all(0 <= wait <= bound for wait, bound in zip(drawn, bounds, strict=True))
    assert len(set(drawn)) > 1


class Work:
    """Attempts that end one after another as they are told."""

    def __init__(self, *errors: ToolError | None) -> None:
        self._errors = iter(errors)
        self.numbers: list[int] = []

    async def run(self, number: int, timeout: float | None) -> ToolResult:
        self.numbers.append(number)
        error = next(self._errors)
        return ToolResult(output=number) if error is None else ToolResult(error=error)


LATE = Timeout(message="late", elapsed=1.0)


async def again(
    work: Work, *, is_idempotent: bool = True, attempts: int = 3, timeout: float | None = None
) -> ToolResult:
    return await repeated(
        work.run, is_idempotent=is_idempotent, attempts=attempts, first_s=0.001, longest_s=0.002, timeout=timeout
    )


@pytest.mark.parametrize("error", [LATE, Overloaded(message="full"), Overloaded(message="full", retry_after_s=0.01)])
async def test_timeout_and_overloaded_are_repeated(error: ToolError) -> None:
    work = Work(error, error, None)
    assert (await again(work)).output == 3 and work.numbers == [1, 2, 3]
    last = Work(error, error, error)
    assert (await again(last)).error == error and last.numbers == [1, 2, 3]


@pytest.mark.parametrize("error", [ExecutionError(message="no"), Crashed(message="gone"), None])
async def test_nothing_else_is_repeated(error: ToolError | None) -> None:
    work = Work(error)
    assert (await again(work)).error == error and work.numbers == [1]


async def test_a_tool_that_is_not_idempotent_is_called_once() -> None:
    work = Work(LATE)
    assert (await again(work, is_idempotent=False)).error == LATE and work.numbers == [1]


async def test_no_attempt_begins_after_the_whole_time() -> None:
    slow = Overloaded(message="full", retry_after_s=7200.0)
    work = Work(slow)
    assert (await again(work, timeout=3600.0)).error == slow


async def test_the_numbers_are_checked() -> None:
    with pytest.raises(UsageError):
        await again(Work(), attempts=0)
