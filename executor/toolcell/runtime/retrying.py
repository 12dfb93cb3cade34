"""Repeat a call of an idempotent tool after Timeout and Overloaded (ADR-0004)."""

import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import anyio

from toolcell.rules import misuse
from toolcell_tools.errors import Overloaded, Timeout
from toolcell_tools.result import ToolResult

__all__ = ["waits"]

ATTEMPTS: Final = 3
FIRST_S, LONGEST_S = 0.2, 10.0


def waits(
    first_s: float, longest_s: float, *, draw: Callable[[float, float], float] = random.uniform
) -> Iterator[float]:
    """The waits between attempts, in seconds: exponential backoff with full jitter, as in "Exponential Backoff And
    Jitter" of the AWS Architecture Blog."""
    bound = first_s
    while True:
        yield draw(0.0, bound)
        bound = min(longest_s, bound * 2)


async def repeated(
    run: Callable[[int, float | None], Awaitable[ToolResult]],
    *,
    is_idempotent: bool,
    attempts: int,
    first_s: float,
    longest_s: float,
    timeout: float | None,
) -> ToolResult:
    """The result of the first attempt that ends in another way than Timeout or Overloaded, or of the last attempt.

    `run(number, timeout)` makes one attempt, of which the first has number 1. All attempts together take at most
    `timeout` seconds.
    """
    misuse.count("attempts", attempts, "Pass how often the call may be made.")
    end = None if timeout is None else time.monotonic() + misuse.seconds("timeout", timeout)
    pauses = waits(misuse.seconds("first_s", first_s), misuse.seconds("longest_s", longest_s))
    number = 1
    while True:
        result = await run(number, None if end is None else max(0.001, end - time.monotonic()))
        error = result.error
        if not is_idempotent or number >= attempts or not isinstance(error, (Timeout, Overloaded)):
            return result
        pause = next(pauses)
        if isinstance(error, Overloaded) and error.retry_after_s is not None:
            pause += error.retry_after_s
        if end is not None and time.monotonic() + pause >= end:
            return result
        await anyio.sleep(pause)
        number += 1
