"""What the seccomp filter of a cell adds to a system call that it allows."""

from functools import partial
from pathlib import Path

import pytest

from .conftest import Publish
from .floors import system_calls
from .interleave import Case, interleave
from .replay import recorded_time
from .report import Figure

pytestmark = pytest.mark.benchmark(timer=recorded_time)

CALLS = {
    "getppid": "allowed by its number alone",
    "fcntl": "allowed after a look at an argument",
    "open, close": "allowed after a look at an argument, and some work to do",
}
SAMPLES = 5


@pytest.mark.parametrize("name", CALLS)
def test_a_filtered_system_call(publish: Publish, name: str) -> None:
    publish(partial(filtered_call, name), 100)


async def filtered_call(name: str, rounds: int, workspace: Path) -> Figure:
    with (
        system_calls(SAMPLES, name, filtered=True) as filtered,
        system_calls(SAMPLES, name, filtered=False) as free,
    ):
        cases = [
            Case(f"{name}, filtered", "ours", filtered.block),
            Case(f"{name}, without a filter", "floor", free.block),
        ]
        return Figure(
            f"filter-{name}", f"A filtered system call: {name} ({CALLS[name]})", await interleave(cases, rounds)
        )
