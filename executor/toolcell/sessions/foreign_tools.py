"""Foreign tools: their code runs in cells only, and the supervisor knows them by a description that is data."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final, NoReturn, Protocol

import anyio

from toolcell.backends.protocols import HttpClient
from toolcell.rules.call import ToolCall
from toolcell.rules.profile import Profile
from toolcell_tools.definition import Tool
from toolcell_tools.dynamic import DynamicTool
from toolcell_tools.interrupts import Guard

WITHIN_S = 2.0
"""Seconds that all sources together have at the end of a session."""
_log = logging.getLogger("toolcell")


class Farewell(Protocol):
    """What one source does at the end of one session."""

    async def say(self, record: Callable[[dict[str, Any]], None]) -> None:
        """Do it. `record` gets the record of each HTTP request."""
        ...


class ForeignSource(ABC):
    """The place that foreign tools come from. Equal sources share cells."""

    url: str = ""
    """The URL of the server that its cells ask. Results do not show the secrets in it."""

    @property
    def process(self) -> str:
        """The name of the kept process that all tools of the source share in a session. "": each tool has its own."""
        return ""

    @property
    def client(self) -> HttpClient | None:
        """The client that makes the HTTP requests of its cells. None: the session's."""
        return None

    def client_in(
        self, session: HttpClient, rules: Sequence[str], farewells: MutableMapping["ForeignSource", Farewell]
    ) -> HttpClient:
        """The client that makes the HTTP requests of its cells in a session, where `session` is the session's client.
        The requests are held to `rules`. The source may put a farewell of its own among the session's."""
        return self.client or session

    @property
    def fixed_headers(self) -> Mapping[str, str]:
        """The headers that its cells send with each request. Results do not show those whose names look secret."""
        return {}

    @abstractmethod
    def profile_in(self, session: Profile) -> Profile:
        """The profile of the source's cells in a session with this profile, before it is narrowed to the grants."""


class ForeignTool(DynamicTool):
    """A tool whose function exists only in cells."""

    @property
    def source(self) -> ForeignSource:
        """The tool's source."""
        raise NotImplementedError

    @property
    def shipment(self) -> Mapping[str, object]:
        """How a cell loads the tool. Another shipment is another cell."""
        raise NotImplementedError

    def sent(self, call: ToolCall) -> ToolCall:
        """The call as the cell gets it."""
        return call


BUSY: Final = object()
"""Instead of a source's list of tools: its process runs a call, and is not asked."""


def elsewhere(arguments: dict[str, Any]) -> NoReturn:
    """The function of a foreign tool in the supervisor's process, where it has none."""
    raise NotImplementedError("this tool runs in cells only; call it through a session")


def source_of(tool: Tool[..., Any]) -> ForeignSource | None:
    """The source of a foreign tool; None for any other tool."""
    return tool.source if isinstance(tool, ForeignTool) else None


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
