"""The default HTTP client: sends one request to one host, with the supervisor's credentials for that host."""

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio

from toolcell.backends.addresses import Address, Target, checked_addresses, parse_url
from toolcell.backends.http.event_stream import WholeLines
from toolcell.backends.outbound import Outbound, Resolver, check_sender, resolve_with_system
from toolcell.backends.protocols import HttpReply, HttpRequest, NotConfigured, Refused, Unreachable
from toolcell.errors import ArgumentError
from toolcell.rules import misuse
from toolcell.rules.credentials import Credential, Origin, parse_origin
from toolcell.rules.redaction import Redaction

if TYPE_CHECKING:
    from toolcell.backends.exchange import ExchangeReply

__all__ = ["BrokeredHttp"]

_AT_ONCE = 64


class BrokeredHttp:
    """Sends requests and adds credentials; implements `HttpClient`. Safe to share between tasks and sessions.

    `credentials` maps each host to one or several Credentials, which go with every request to it. A host is written
    "api.example.com", "api.example.com:8443" or "http://127.0.0.1:8080"; the default scheme is https. No credential is
    sent to another scheme, host or port. The rules of the profile decide which requests are made. `timeout_s` covers
    one request, from name lookup to last byte; the end of the call ends it sooner. `resolve(host, port)` may block, and
    returns addresses. `tls` is for a private authority. `exception` says in an error how a private address is allowed,
    if not by a rule of the profile. Raises ValueError for an invalid host and for a missing
    credential.
    """

    def __init__(
        self,
        *,
        credentials: Mapping[str, Credential | Sequence[Credential]] | None = None,
        timeout_s: float = 30.0,
        user_agent: str = "toolcell/0.1",
        resolve: Resolver = resolve_with_system,
        tls: ssl.SSLContext | None = None,
        exception: str = "",
    ) -> None:
        check_sender(user_agent, resolve, tls)
        misuse.check_text("exception", exception)
        self._credentials: dict[Origin, tuple[Credential, ...]] = {}
        for place, given in misuse.mapping("credentials", credentials).items():
            listed = (given,) if isinstance(given, Credential) else tuple(given)
            names = [credential.header.lower() for credential in listed]
            if len(set(names)) != len(names):
                raise ArgumentError(f"Two credentials for {place!r} are in one header. A header is sent once.")
            for credential in listed:
                try:
                    credential.read()
                except ValueError as error:
                    raise ArgumentError(f"The credential for {place!r} is not there: {error}") from None
            self._credentials[parse_origin(place)] = listed
        self._timeout_s = misuse.seconds("timeout_s", timeout_s)
        self._headers = {"user-agent": user_agent, "accept": "*/*"}
        self._outbound = Outbound(_AT_ONCE, resolve, tls)
        self._exception = exception

    def __repr__(self) -> str:
        places = ", ".join(f"{scheme}://{host}:{port}" for scheme, host, port in self._credentials)
        return f"<BrokeredHttp credentials for: {places or 'no host'}>"

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """The credentials of all hosts."""
        return tuple([each for listed in self._credentials.values() for each in listed])

    async def send(self, request: HttpRequest) -> HttpReply:
        """Send one request and return its answer, a redirect included. Raise `Refused` for an address that is not
        allowed, `NotConfigured` for a credential that is missing now, and `Unreachable` for every other failure, such
        as a too large, incomplete or late answer.
        """
        target = parse_url(request.url, any_port=True)
        credentials = self._credentials.get((target.scheme, target.host, target.port), ()) if request.authorize else ()
        own, redaction = headers_for((), target.host)
        if credentials:  # which may be read from files
            own, redaction = await self._outbound.in_thread(partial(headers_for, credentials, target.host))
        taken = next((name for name in request.headers if name.replace("_", "-") in own), None)
        if taken is not None:
            raise Refused(f"The header {taken!r} is not a tool's to set: the supervisor sets it. Leave it out.")
        headers = {**self._headers, **request.headers, "accept-encoding": "gzip, deflate", **own}
        room = _AnswerRoom(request)
        events = None if request.on_events is None else _redacting(request.on_events, redaction)
        try:
            with anyio.fail_after(self._timeout_s):
                addresses = _checked(request, target, await self._outbound.addresses(target), self._exception)
                reply = await self._outbound.ask(
                    target,
                    addresses,
                    headers=headers,
                    max_bytes=request.max_bytes,
                    method=request.method,
                    body=request.body,
                    on_large=room.grow,
                    on_events=events,
                )
                _require_whole(target, reply, request.max_bytes)
                redact = partial(_redacted, reply, redaction, tuple(own))
                return await self._outbound.in_thread(redact, abandon=True) if own else redact()
        except TimeoutError:
            if room.is_awaited:
                raise Unreachable(
                    f"The answer of {target.host} waited {self._timeout_s:g} s for memory that answers to other "
                    "requests use. The request was sent. Have fewer requests in flight."
                ) from None
            raise Unreachable(
                f"{target.host} did not answer within {self._timeout_s:g} s. The request may have had its effect: "
                "repeat it only if a second time does no harm."
            ) from None


def headers_for(credentials: Iterable[Credential], host: str) -> tuple[Mapping[str, str], Redaction]:
    """The headers for these credentials, and the redaction of the answer. Raises NotConfigured if a secret is
    missing.
    """
    headers: dict[str, str] = {}
    secrets: list[str] = []
    for credential in credentials:
        try:
            secret = credential.read()
        except ValueError:
            raise NotConfigured(
                f"The credential for {host} cannot be read. Whoever runs the agent can repair it: {credential.header}."
            ) from None
        headers[credential.header.lower()] = credential.line(secret)
        secrets += credential.parts(secret)
    return headers, Redaction(secrets)


def _checked(request: HttpRequest, target: Target, answers: list[str], exception: str) -> list[Address]:
    if request.private:
        return checked_addresses(target, answers, {(target.host, target.port)})
    try:
        return checked_addresses(target, answers, ())
    except Refused:
        rule = f"Profile(http=[..., '{request.method} {target.scheme}://{target.authority} private'])"
        raise Refused(
            f"{target.host} has no address, or one that is not public. "
            f"Whoever runs the agent can make an exception: {exception or rule}."
        ) from None


class _AnswerRoom:
    """Room for an answer beyond its first 64 KiB."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self.is_awaited = False

    async def grow(self) -> None:
        if self._request.grow is not None:
            self.is_awaited = True
            await self._request.grow(self._request.max_bytes)
            self.is_awaited = False


def _require_whole(target: Target, reply: "ExchangeReply", max_bytes: int) -> None:
    """Raise Unreachable for an incomplete answer, which a tool could take for a complete one."""
    if len(reply.body) >= max_bytes and reply.truncated:
        raise Unreachable(f"The answer of {target.host} is larger than {max_bytes:,} bytes. Ask for less at a time.")
    if reply.truncated:
        raise Unreachable(f"The answer of {target.host} breaks off. Try again later.")


def _redacting(pass_on: Callable[[bytes], None], redaction: Redaction) -> Callable[[bytes], None]:
    """Takes parts of a body, and passes its whole lines on as `Redaction.body` shows them: no secret has a line end."""
    return WholeLines(lambda lines: pass_on(redaction.body(lines))).take


def _redacted(reply: "ExchangeReply", redaction: Redaction, credentials: tuple[str, ...]) -> HttpReply:
    body = redaction.body(reply.body)
    kept = (header for header in reply.headers if body == reply.body or header[0].lower() != "content-length")
    headers = tuple((redaction.text(name), redaction.text(value)) for name, value in kept)
    location = None if reply.location is None else redaction.text(reply.location)
    return HttpReply(reply.status, headers, body, location, reply.address, credentials)
