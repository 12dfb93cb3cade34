"""The protocol's client, with a server of a few prepared answers."""

from collections.abc import Callable, Generator, Iterator

import pytest

from toolcell.mcp.client.inside.jsonrpc import PROBLEM, Message, Misbehaved
from toolcell.mcp.client.inside.mcp_client import VERSIONS, Client
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
def test_an_entry_without_a_name_is_told_and_costs_no_other_tool(tool: object) -> None:
    assert listing({"tools": [tool, {"name": "a"}]}) == [
        {"name": "a"},
        {PROBLEM: "its list of tools has an entry without a name"},
    ]


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ([{"tools": [{"name": "a"}], "nextCursor": "x"}] * 2, "repeats: the cursor 'x'"),
        ([{"tools": [{"name": "a"}], "nextCursor": each} for each in "xyz"], "repeats: the cursor 'y'"),
        ([{"tools": [{"name": "a"}], "nextCursor": "x"}, {"tools": [], "nextCursor": "x"}], "repeats: the cursor 'x'"),
        ([{"tools": [{"name": "a"}], "nextCursor": 7}], "a cursor that is no text"),
        ([{"tools": [{"name": "a"}], "nextCursor": "x" * 10_001}], "a cursor that is no text of at most 10,000"),
        ([{"tools": [{"name": "a"}], "nextCursor": "x"}] + [{"tools": [], "nextCursor": f"{n}"} for n in range(99)],
         "more than 100 pages"),
    ],
)  # fmt: skip
def test_a_list_whose_next_page_cannot_follow_keeps_its_tools_and_says_so(pages: list[Message], said: str) -> None:
    tool, told = listing(*pages)
    assert tool == {"name": "a"} and told.keys() == {PROBLEM} and said in told[PROBLEM]


def test_a_server_without_the_capability_is_not_asked_for_tools_and_that_is_told() -> None:
    client = Client(Prepared({"protocolVersion": VERSIONS[0], "capabilities": {"prompts": {}}}), None, "0")
    client.initialize(context())
    ((told),) = client.listing(context())
    assert "does not declare the capability 'tools'" in told[PROBLEM]


@pytest.mark.parametrize("tools", [None, {}, "a"], ids=repr)
def test_a_list_that_is_none_ends_the_server(tools: object) -> None:
    with pytest.raises(Misbehaved, match="list of tools is no list"):
        listing({"tools": tools})
