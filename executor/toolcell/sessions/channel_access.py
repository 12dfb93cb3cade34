"""A session's access to its channel: the level and the token buckets, checked before the channel is asked.

A session that borrows its parent's channel takes its tokens from its own bucket and from every bucket above.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from toolcell.backends.protocols import Channel, NotConfigured, OutsideRules, Refused
from toolcell.rules.channel import ChannelPolicy, TokenBucket, allowed_at
from toolcell_tools.handles import OPERATIONS, ChannelMessage, ChannelStatus, SentMessage

__all__ = ["ChannelAccess", "TooOften"]

_SENT: Final = 1_000
"""The messages of a tree of sessions that can still be edited."""


class TooOften(Refused):
    """The token bucket is empty. `retry_after_s` is when it has a token again."""

    def __init__(self, policy: ChannelPolicy, retry_after_s: float) -> None:
        wait = f"{retry_after_s:,.0f}" if retry_after_s >= 10 else f"{retry_after_s:.2g}"
        super().__init__(
            f"The channel takes {policy.burst} operations at once and then {policy.per_s:g} a second. The next one is "
            f"possible in {wait} s. Say more in one message."
        )
        self.retry_after_s = retry_after_s


class ChannelAccess:
    """One session's use of a channel. `above` is the access of the session that it borrows the channel from."""

    __slots__ = ("_buckets", "_sent", "channel", "policy")

    def __init__(
        self,
        channel: Channel,
        policy: ChannelPolicy,
        above: "ChannelAccess | None" = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.channel = channel
        self.policy: ChannelPolicy = policy if above is None else policy.narrowed(above.policy)
        own = TokenBucket(self.policy.burst, self.policy.per_s, now)
        self._buckets: tuple[TokenBucket, ...] = (own,) if above is None else (own, *above._buckets)
        self._sent: dict[str, None] = {} if above is None else above._sent  # the ids of messages, the oldest first

    @property
    def status(self) -> ChannelStatus:
        """What is possible now."""
        return ChannelStatus(
            level=self.policy.level,
            operations=tuple(sorted(name for name in allowed_at(self.policy.level) if self._has(name))),
            remaining=min(bucket.remaining for bucket in self._buckets),
            wait_s=max(bucket.wait_s for bucket in self._buckets),
        )

    async def send(self, text: str, *, sender: str, to: str = "") -> SentMessage:
        """Send a message, into the conversation or to another place."""
        if to:
            id = await self._admitted("send_to")(to, text, sender=sender)
        else:
            id = await self._admitted("send")(text, sender=sender)
        return self._as_sent(id)

    async def ask(self, question: str, options: Sequence[str], *, sender: str) -> str:
        """Ask, and wait for the answer."""
        return str(await self._admitted("ask")(question, options=tuple(options), sender=sender))

    async def perform(self, operation: str, *arguments: object, sender: str) -> None:
        """Carry out an operation without an answer."""
        await self._admitted(operation)(*arguments, sender=sender)

    async def edit(self, message_id: str, text: str, *, sender: str) -> None:
        """Edit a message that this tree of sessions has sent."""
        edit = self._found("edit")
        if message_id not in self._sent:
            raise Refused(f"The message {message_id[:80]!r} is not one of the last {_SENT:,} that were sent from here.")
        self._take()
        await edit(message_id, text, sender=sender)

    async def upload(self, name: str, data: bytes, media_type: str, *, sender: str) -> SentMessage:
        return self._as_sent(await self._admitted("upload")(name, data, media_type=media_type, sender=sender))

    async def read(self, limit: int) -> list[ChannelMessage]:
        """The last messages, the newest last."""
        found = await self._admitted("read")(limit=limit)
        return list(found)[-limit:]

    def _admitted(self, operation: str) -> Callable[..., Any]:
        """The channel's method for an operation that is allowed now. Takes a token."""
        method = self._found(operation)
        if OPERATIONS[f"channel.{operation}"].acts({}):  # nobody sees the others, which take no token
            self._take()
        return method

    def _found(self, operation: str) -> Callable[..., Any]:
        level = self.policy.level
        if operation not in allowed_at(level):
            least = next(each for each in ("ask", "reply", "broadcast") if operation in allowed_at(each))
            raise OutsideRules(
                f"This session's channel has the level {level!r}, which does not allow {operation!r}. Whoever runs the "
                f"agent can allow it: Profile(channel=ChannelPolicy(level={least!r}))."
            )
        if not self._has(operation):
            can = ", ".join(self.status.operations) or "nothing"
            raise NotConfigured(f"This channel cannot {operation!r}. It can: {can}.")
        return cast("Callable[..., Any]", getattr(self.channel, operation))

    def _has(self, operation: str) -> bool:
        return operation == "status" or callable(getattr(self.channel, operation, None))

    def _take(self) -> None:
        wait_s = max(bucket.wait_s for bucket in self._buckets)
        if wait_s > 0:
            raise TooOften(self.policy, wait_s)
        for bucket in self._buckets:
            bucket.take()

    def _as_sent(self, id: object) -> SentMessage:
        if isinstance(id, str) and id:
            self._sent[id] = None
            while len(self._sent) > _SENT:
                del self._sent[next(iter(self._sent))]
        return SentMessage(
            id if isinstance(id, str) else "", getattr(self.channel, "reaches_people", True) is not False
        )
