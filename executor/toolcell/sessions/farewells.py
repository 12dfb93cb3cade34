"""What foreign sources do at the end of a session, after its cells are gone."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import anyio

from toolcell_tools.interrupts import Guard

__all__ = ["Farewell", "say_all"]

WITHIN_S = 2.0
"""Seconds that all sources together have at the end of a session."""
_log = logging.getLogger("toolcell")


class Farewell(Protocol):
    """What one source does at the end of one session."""

    async def say(self, record: Callable[[dict[str, Any]], None]) -> None:
        """Do it. `record` gets the record of each HTTP request."""
        ...


async def say_all(farewells: Iterable[Farewell], record: Callable[[dict[str, Any]], None]) -> None:
    """Say all farewells, at the same time. A failure is logged, and delays nobody."""

    async def say(farewell: Farewell) -> None:
        try:
            async with Guard():
                await farewell.say(record)
        except Exception:  # of the network, of the other side, or of the program's client
            _log.debug("a source of tools did not end as it should", exc_info=True)

    with anyio.move_on_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            for each in farewells:
                tasks.start_soon(say, each)
