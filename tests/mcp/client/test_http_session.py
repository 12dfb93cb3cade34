"""`ServerSession`: which ids of MCP sessions it notes, and what it sends at the end."""

import pytest

from toolcell.backends.protocols import HttpReply, HttpRequest
from toolcell.mcp.client.server_source import ServerSession

pytestmark = pytest.mark.anyio
URL = "https://mcp.example.org/mcp"
BOTH = (f"POST {URL}", f"DELETE {URL}")


class Server:
    """Answers with a status and headers, and keeps the requests."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: tuple[tuple[str, str], ...] = ()
        self.seen: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> HttpReply:
        self.seen.append(request)
        return HttpReply(self.status, self.headers)


def unrecorded(_record: object) -> None:
    pass


def posted(url: str = URL, **headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("POST", url, named, b"{}")


async def deleted(given: str | None, rules: tuple[str, ...] = BOTH, url: str = URL) -> list[str]:
    """The ids for which a DELETE was sent, after an answer with this one."""
    server = Server()
    session = ServerSession(URL, {}, rules, server)
    server.headers = () if given is None else (("Mcp-Session-Id", given),)
    await session.send(posted(url))
    for _ in range(2):
        await session.say(unrecorded)
    return [each.headers["mcp-session-id"] for each in server.seen if each.method == "DELETE"]


@pytest.mark.parametrize("id", ["a", "!~", "x" * 1024])
async def test_an_id_of_visible_ascii_is_ended_once(id: str) -> None:
    assert await deleted(id) == [id]


@pytest.mark.parametrize("id", [None, "", "a b", "a\r\nx: y", "a\n", "é", "\x7f", "x" * 1025])
async def test_any_other_id_is_not_sent(id: str | None) -> None:
    assert await deleted(id) == []


async def test_nothing_is_sent_that_the_rules_do_not_allow_or_another_place_has_said() -> None:
    assert await deleted("a", (f"POST {URL}",)) == []
    assert await deleted("a", url="https://mcp.example.org/other") == []


async def test_a_session_that_the_server_has_forgotten_is_not_ended() -> None:
    server = Server()
    session = ServerSession(URL, {}, BOTH, server)
    server.headers = (("mcp-session-id", "a"),)
    await session.send(posted())
    server.status, server.headers = 404, ()
    await session.send(posted(mcp_session_id="a"))
    await session.say(unrecorded)
    assert [each.method for each in server.seen] == ["POST", "POST"]
