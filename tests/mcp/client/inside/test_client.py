"""The protocol's client, with a server of a few prepared answers."""

from collections.abc import Callable, Generator, Iterator

import pytest

from toolcell.mcp.client.inside.client import VERSIONS, Client
from toolcell.mcp.client.inside.messages import Message, Misbehaved
from toolcell.testing import context


class Prepared:
    """Answers each request with the next result. What is posted is in `posted`."""

    def __init__(self, *results: Message) -> None:
        self._results = iter(results)
        self.asked, self.posted = list[Message](), list[Message]()

    def drain(self) -> Iterator[Message | None]:
        return iter(())

    def post(self, message: Message) -> None:
        self.posted.append(message)

    def exchange(self, message: Message, tick: Callable[[], None]) -> Generator[Message | None]:
        self.asked.append(message)
        yield {"jsonrpc": "2.0", "id": message["id"], "result": next(self._results)}

    def agreed(self, version: str) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def kill(self) -> None: ...


GREETING: Message = {"protocolVersion": VERSIONS[0], "capabilities": {"tools": {}}}


def listing(*pages: Message) -> list[Message]:
    client = Client(Prepared(GREETING, *pages), None, "0")
    client.initialize(context())
    return client.listing(context())


def test_the_pages_of_a_list_are_read_in_turn_and_what_nobody_reads_is_left_out() -> None:
    server = Prepared(
        GREETING,
        {"tools": [{"name": "a", "icons": [1], "title": None}], "nextCursor": "more"},
        {"tools": [{"name": "b", "description": "B"}]},
    )
    client = Client(server, None, "0")
    client.initialize(context())
    assert client.listing(context()) == [{"name": "a"}, {"name": "b", "description": "B"}]
    assert [asked["params"] for asked in server.asked[1:]] == [{}, {"cursor": "more"}]


@pytest.mark.parametrize("tool", [{}, {"name": None}, {"name": 7}, "a", None, ["name"]], ids=repr)
def test_an_entry_without_a_name_ends_the_server(tool: object) -> None:
    with pytest.raises(Misbehaved, match="an entry without a name"):
        listing({"tools": [tool]})


@pytest.mark.parametrize("tools", [None, {}, "a"], ids=repr)
def test_a_list_that_is_none_ends_the_server(tools: object) -> None:
    with pytest.raises(Misbehaved, match="list of tools is no list"):
        listing({"tools": tools})
