"""A channel that posts JSON to one URL of the program's own service."""

import base64
import json
import ssl
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from toolcell.backends.addresses import parse_url
from toolcell.backends.http.client import BrokeredHttp
from toolcell.backends.outbound import Resolver, resolve_with_system
from toolcell.backends.protocols import HttpRequest, Refused, Unreachable
from toolcell.backends.threads import Threads
from toolcell.errors import ArgumentError
from toolcell.rules.credentials import Credential
from toolcell.rules.redaction import origin_of
from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell.store.approvals.request import to_data

__all__ = ["WebhookChannel"]

_ANSWER_BYTES: Final = 1024 * 1024
_LARGE: Final = 64 * 1024  # bytes of a file that are encoded in a thread


class WebhookChannel:
    """Posts each operation to `url` as JSON: {"event", "id", "sender", …}. Any status from 200 to 299 is a success.

    Requests go through the guarded client: the address is checked, unless `private`, no redirect is followed, and the
    `credential` goes to this host only. An answer may be JSON: {"id"} names a message, {"answer"} answers a question,
    and {"approved": true} or {"approved": false, "message"} an approval, which is asked with `approves`. A question and
    an approval wait `answer_s` seconds for the answer to their request.
    """

    def __init__(
        self,
        url: str,
        *,
        credential: Credential | None = None,
        name: str = "",
        approves: bool = False,
        private: bool = False,
        timeout_s: float = 30.0,
        answer_s: float = 300.0,
        resolve: Resolver = resolve_with_system,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            target = parse_url(url, any_port=True)
        except Refused as error:
            raise ArgumentError(f"WebhookChannel was given a URL that is refused: {error}") from None
        keys = {} if credential is None else {f"{target.scheme}://{target.authority}": credential}
        new = partial(
            BrokeredHttp, credentials=keys, resolve=resolve, tls=tls, exception="WebhookChannel(..., private=True)"
        )
        self.name = name
        self._url, self._private = target.url, private
        self._quick, self._patient = new(timeout_s=timeout_s), new(timeout_s=answer_s)
        self._threads = Threads(4)
        if approves:
            self.approve = self._approve

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """The credential of the webhook, if it has one."""
        return self._quick.credentials

    def __repr__(self) -> str:
        return f"<WebhookChannel {origin_of(self._url)}>"

    async def send(self, text: str, *, sender: str) -> str | None:
        return _id(await self._post("message", sender, text=text))

    async def send_to(self, place: str, text: str, *, sender: str) -> str | None:
        return _id(await self._post("message", sender, text=text, place=place))

    async def ask(self, question: str, *, options: Sequence[str], sender: str) -> str:
        answer = await self._post("question", sender, patient=True, text=question, options=list(options))
        said = answer.get("answer")
        if not isinstance(said, str) or (options and said not in options):
            raise Unreachable("Nobody answered the question. Go on without an answer, or ask again later.")
        return said

    async def react(self, message_id: str, emoji: str, *, sender: str) -> None:
        await self._post("reaction", sender, message_id=message_id, emoji=emoji)

    async def edit(self, message_id: str, text: str, *, sender: str) -> None:
        await self._post("edit", sender, message_id=message_id, text=text)

    async def pin(self, message_id: str, *, sender: str) -> None:
        await self._post("pin", sender, message_id=message_id)

    async def upload(self, name: str, data: bytes, *, media_type: str, sender: str) -> str | None:
        encode = partial(base64.b64encode, data)
        encoded = await self._threads.run(encode) if len(data) > _LARGE else encode()
        file: dict[str, Any] = {"name": name, "media_type": media_type, "data": encoded.decode("ascii")}
        return _id(await self._post("file", sender, **file))

    async def _approve(self, request: ApprovalRequest) -> Approved | Denied:
        answer = await self._post("approval", request.sender, patient=True, text=request.text, request=to_data(request))
        if answer.get("approved") is True:
            return Approved()
        message = answer.get("message")
        return Denied(message if isinstance(message, str) else "")

    async def _post(self, event: str, sender: str, *, patient: bool = False, **fields: object) -> dict[str, Any]:
        """Post an event, and return the JSON object that is the answer, or {}."""
        body = json.dumps({"event": event, "id": uuid.uuid4().hex, "sender": sender, **fields}).encode()
        reply = await (self._patient if patient else self._quick).send(
            HttpRequest(
                "POST",
                self._url,
                {"content-type": "application/json"},
                body,
                private=self._private,
                max_bytes=_ANSWER_BYTES,
            )
        )
        if not 200 <= reply.status < 300:
            raise Unreachable(f"The channel answered with status {reply.status}. Try again later.")
        try:
            answer: object = json.loads(reply.body) if reply.body.strip() else {}
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}


def _id(answer: dict[str, Any]) -> str | None:
    id = answer.get("id")
    return id if isinstance(id, str) and 0 < len(id) <= 256 else None
