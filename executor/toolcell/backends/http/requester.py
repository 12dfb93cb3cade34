"""The HTTP requests of one call, and their records. The rules check each request and redirect before it is sent."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import anyio

from toolcell.backends.addresses import Target, parse_redirect, parse_url
from toolcell.backends.http.checks import answer_headers, checked_headers, checked_method, rule_for
from toolcell.backends.http.event_stream import Feed, Feeds
from toolcell.backends.protocols import BackendError, HttpClient, HttpReply, HttpRequest, Refused, Unreachable
from toolcell.rules.hosts import rules_of
from toolcell.telemetry.tracing import CallTrace
from toolcell_tools.handles import HttpResponse

__all__ = ["MAX_REQUEST", "MAX_RESPONSE", "HttpOutcome", "Requester", "Trail"]


@dataclass(slots=True, eq=False)
class HttpOutcome:
    """The record of one request. `allowed` is the decision. `reason` says why it was refused, or why there is no
    answer.

    `path` is without its query. `credentials` are the names of the headers that the supervisor added, never their
    values. Bytes are those of the bodies; `in` is towards the cell.
    """

    method: str = ""
    scheme: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    rule: str = ""
    address: str = ""
    credentials: tuple[str, ...] = ()
    allowed: bool = False
    reason: str = ""
    status: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Trail:
    """`write` takes each record, once its request is over. `close` is for the end of the call."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._open: dict[HttpOutcome, None] = {}

    @contextmanager
    def outcome(self) -> Generator[HttpOutcome]:
        """The outcome of one request, which the caller fills in. It is recorded when the block ends."""
        outcome = HttpOutcome()
        self._open[outcome] = None
        try:
            yield outcome
        except BackendError as error:
            outcome.allowed = outcome.allowed and not isinstance(error, Refused)
            outcome.reason = str(error)
            raise
        except Exception:
            outcome.reason = "the client failed"
            raise
        except BaseException:
            outcome.reason = outcome.reason or "the call ended"
            raise
        finally:
            self._end(outcome)

    def close(self) -> None:
        """Record the open requests, because the call is over. Called before the caller gets the result."""
        for outcome in list(self._open):
            outcome.reason = "the call ended"
            self._end(outcome)

    def _end(self, outcome: HttpOutcome) -> None:
        if outcome in self._open:
            del self._open[outcome]
            self._write({**asdict(outcome), "credentials": list(outcome.credentials)})


Grow = Callable[[int], Coroutine[Any, Any, None]] | None
"""Waits for room for a large answer. None if there is no bound."""
MAX_REQUEST = 4 * 1024 * 1024
MAX_RESPONSE = 8 * 1024 * 1024
MAX_REDIRECTS = 5
AT_ONCE = 16  # of one call; further requests wait
_KEPT_ELSEWHERE = frozenset({"accept", "accept-language", "content-type", "user-agent"})  # in a redirect elsewhere
_OF_A_BODY = frozenset({"content-type", "content-language", "content-location"})


class Requester:
    """Makes the requests of one call, by the rules of its session's profile. `trail` has a record of each,
    and `trace` a span of each that is allowed."""

    def __init__(self, rules: Iterable[str], client: HttpClient, trail: Trail, trace: CallTrace | None = None) -> None:
        self._rules = rules_of(rules)
        self._client = client
        self._trail = trail
        self._trace = trace
        self._room = anyio.Semaphore(AT_ONCE)
        self._feeds = Feeds()

    async def watched(
        self, number: int, method: str, url: str, headers: Mapping[str, str], body: bytes, *, grow: Grow = None
    ) -> HttpResponse:
        """As `request`. Meanwhile, `events(number)` has the events of the answer that have arrived, and `leave(number)`
        ends the request. Raises `Unreachable` if it is left."""
        with anyio.CancelScope() as scope:
            feed = self._feeds.begin(number, scope)
            try:
                return await self.request(method, url, headers, body, grow=grow, feed=feed)
            finally:
                feed.end()
        raise Unreachable("The call stopped reading the answer.")

    async def events(self, number: int) -> bytes | None:
        """Wait for events of the answer to a watched request: whole lines. None: the rest comes with the answer."""
        return await self._feeds[number].fetch()

    def leave(self, number: int) -> None:
        """End a watched request, now or when it begins."""
        self._feeds[number].leave()

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        grow: Grow = None,
        feed: Feed | None = None,
    ) -> HttpResponse:
        """The answer after redirects, with any status. Raises `Refused` if a request is not allowed, and what the
        client raises.

        A redirect to another origin (scheme, host or port) is followed without credentials, and with only those headers
        of the tool that describe the body or name the client.
        """
        async with self._room:
            with self._trail.outcome() as outcome:
                target = self._read(outcome, method, url)
                said = checked_headers(headers)
                if len(body) > MAX_REQUEST:
                    raise Refused(f"The body has {len(body):,} bytes, over the limit of {MAX_REQUEST:,}. Send less.")
                method, authorize = outcome.method, True
                reply = await self._send(outcome, target, said, body, authorize, grow, feed)
            for _ in range(MAX_REDIRECTS):
                if reply.location is None:
                    return HttpResponse(reply.status, answer_headers(reply.headers), reply.body)
                with self._trail.outcome() as outcome:
                    following = self._redirected(outcome, method, target, reply)
                    method = outcome.method
                    if reply.status not in (307, 308) and method in ("GET", "HEAD"):
                        body, said = b"", {name: value for name, value in said.items() if name not in _OF_A_BODY}
                    if _origin(following) != _origin(target):
                        authorize, said = False, {n: v for n, v in said.items() if n in _KEPT_ELSEWHERE}
                    target = following
                    reply = await self._send(outcome, target, said, body, authorize, grow, feed)
            if reply.location is None:
                return HttpResponse(reply.status, answer_headers(reply.headers), reply.body)
            raise Unreachable(
                f"There were more than {MAX_REDIRECTS} redirects, the last from {target.host}. Use another URL."
            )

    def _read(self, outcome: HttpOutcome, method: str, url: str) -> Target:
        outcome.method = checked_method(method)
        return _noted(outcome, parse_url(url, any_port=True))

    def _redirected(self, outcome: HttpOutcome, method: str, origin: Target, reply: HttpReply) -> Target:
        """Set the outcome's method for a redirect, and return its target (WHATWG Fetch, HTTP-redirect fetch)."""
        assert reply.location is not None
        to_get = (reply.status == 303 and method != "HEAD") or (reply.status in (301, 302) and method == "POST")
        outcome.method = "GET" if to_get else method
        try:
            return _noted(outcome, parse_redirect(origin, reply.location, any_port=True))
        except Refused as error:
            raise Refused(f"{origin.host} answered with a redirect that is refused. {error}") from None

    async def _send(
        self,
        outcome: HttpOutcome,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        authorize: bool,
        grow: Grow,
        feed: Feed | None,
    ) -> HttpReply:
        rule = rule_for(self._rules, outcome.method, target)
        outcome.allowed, outcome.rule, outcome.bytes_out = True, str(rule), len(body)
        request = HttpRequest(
            outcome.method,
            target.url,
            headers,
            body,
            rule.private,
            authorize,
            MAX_RESPONSE,
            grow,
            on_events=None if feed is None else feed.take,
        )
        try:
            reply = await self._sent(request, outcome, target)
        except anyio.get_cancelled_exc_class():
            outcome.reason = "the call stopped reading the answer" if feed is not None and feed.is_left else ""
            raise
        outcome.status, outcome.bytes_in = reply.status, len(reply.body)
        outcome.address, outcome.credentials = reply.address, reply.credentials
        return reply

    async def _sent(self, request: HttpRequest, outcome: HttpOutcome, target: Target) -> HttpReply:
        if self._trace is None:
            return await self._client.send(request)
        with self._trace.request(outcome.method, target.scheme, target.host, target.port, outcome.path) as span:
            reply = await self._client.send(replace(request, headers={**request.headers, **span.headers}))
            span.answered(reply.status)
            return reply


def _noted(outcome: HttpOutcome, target: Target) -> Target:
    outcome.scheme, outcome.host, outcome.port = target.scheme, target.host, target.port
    outcome.path = target.path.partition("?")[0]
    return target


def _origin(target: Target) -> tuple[str, str, int]:
    return target.scheme, target.host, target.port
