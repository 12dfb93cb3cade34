"""The MCP session of a server behind a URL, which is ended with the session of the cell that began it."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from toolcell.backends.addresses import parse_url
from toolcell.backends.http import Requester, Trail
from toolcell.backends.http.checks import rule_for
from toolcell.backends.protocols import HttpClient, HttpReply, HttpRequest, Refused
from toolcell.rules.hosts import rules_of

_ID = re.compile(r"[!-~]{1,1024}")  # visible ASCII, as the transport of MCP 2025-11-25 says; the length is ours
_SESSION, _VERSION, _GONE = "mcp-session-id", "mcp-protocol-version", 404


class ServerSession:
    """The client of one server's requests in one session. It notes the id of the MCP session in the server's answers,
    so that `say` can end it: the cell is gone by then."""

    def __init__(self, url: str, headers: dict[str, str], rules: Sequence[str], client: HttpClient) -> None:
        self._target = parse_url(url, any_port=True)
        self._headers = headers
        self._rules = rules
        self._client = client
        self._noted: dict[str, str] = {}
        """The headers that name the MCP session, if there is one."""

    async def send(self, request: HttpRequest) -> HttpReply:
        """Send a request, and note what its answer says of the MCP session."""
        reply = await self._client.send(request)
        if request.method == "POST" and request.url == self._target.url:
            self._note(request, reply)
        return reply

    def _note(self, request: HttpRequest, reply: HttpReply) -> None:
        sent = {name.lower(): value for name, value in request.headers.items()}
        if reply.status == _GONE and sent.get(_SESSION) == self._noted.get(_SESSION):
            self._noted = {}
        said = [value for name, value in reply.headers if name.lower() == _SESSION]
        if len(said) == 1 and _ID.fullmatch(said[0]):
            self._noted = {_SESSION: said[0]}
        if self._noted and _VERSION in sent:
            self._noted[_VERSION] = sent[_VERSION]

    async def say(self, record: Callable[[dict[str, Any]], None]) -> None:
        """End the MCP session with a DELETE, if there is one and the rules allow it. `record` gets the record of the
        request. Raises what the client raises."""
        noted, self._noted = self._noted, {}
        if not noted or not self._may_delete():
            return
        requester = Requester(self._rules, self._client, Trail(record))
        await requester.request("DELETE", self._target.url, {**self._headers, **noted}, b"")

    def _may_delete(self) -> bool:
        try:
            rule_for(rules_of(self._rules), "DELETE", self._target)
        except Refused:
            return False
        return True
