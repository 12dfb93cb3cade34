"""Channels of the program itself: a conversation in memory, and a channel of functions."""

import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio

from toolcell.backends.protocols import Refused
from toolcell.errors import ArgumentError, UsageError
from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell.wire.budget import MIB, oldest_beyond
from toolcell_tools.handles import OPERATIONS, ChannelMessage

__all__ = [
    "CallbackChannel",
    "ChannelQuestion",
    "InMemoryChannel",
    "ShownMessage",
]

MOST: Final = 1_000
MOST_BYTES: Final = 64 * MIB
"""The most messages that are kept, and their bytes. The oldest are dropped first."""
MOST_REACTIONS: Final = 100


@dataclass(slots=True)
class ShownMessage:
    """One message of an `InMemoryChannel`, with what happened to it. `data` is an uploaded file."""

    id: str
    text: str
    sender: str
    at: float
    place: str = ""
    data: bytes | None = None
    media_type: str = ""
    is_pinned: bool = False
    reactions: list[str] = field(default_factory=list[str])

    @property
    def bytes(self) -> int:
        """Its approximate size."""
        return len(self.text) + len(self.data or b"") + sum(map(len, self.reactions))


@dataclass(slots=True, eq=False)
class ChannelQuestion:
    """A question that waits for an answer. `request` is the call that waits for approval, if it is about one."""

    id: str
    text: str
    options: tuple[str, ...]
    sender: str
    request: ApprovalRequest | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: str | Approved | Denied = ""


class InMemoryChannel:
    """Keeps the last 1,000 messages, of 64 MiB at most, and questions until they are answered. Every operation is
    possible.

    The program reads `messages` and `questions`, writes as a person with `say`, and answers with `answer(id, …)`: text,
    or Approved or Denied for an approval. `on_change` is called after each change. All of it happens on the event loop.
    With `approves=False`, approvals are shown as messages, and asked elsewhere.
    """

    def __init__(self, *, name: str = "", approves: bool = True, on_change: Callable[[], object] | None = None) -> None:
        self.name = name
        self.messages: deque[ShownMessage] = deque(maxlen=MOST)
        self._questions: dict[str, ChannelQuestion] = {}
        self._numbers = count(1)
        self._on_change = on_change
        if approves:
            self.approve = self._approve

    @property
    def questions(self) -> Mapping[str, ChannelQuestion]:
        """The questions that wait, by id, the oldest first."""
        return self._questions

    def say(self, text: str, *, sender: str = "person") -> str:
        """Write a message as a person, which tools can read."""
        return self._shown(text, sender).id

    def answer(self, id: str, answer: str | Approved | Denied) -> None:
        """Answer a question. Raises UsageError if there is none of this id, or if the answer is none to it."""
        question = self._questions.get(id)
        if question is None:
            raise UsageError(f"There is no question {id!r}. It was answered, or its call has ended.")
        if (question.request is None) != isinstance(answer, str):
            wanted = "text" if question.request is None else "Approved() or Denied(…)"
            raise UsageError(f"The answer to {id!r} is not {wanted}: {answer!r}.")
        if question.options and answer not in question.options:
            raise UsageError(f"The answer to {id!r} is none of {', '.join(question.options)}: {answer!r}.")
        question.answer = answer
        question.answered.set()

    async def send(self, text: str, *, sender: str) -> str:
        return self._shown(text, sender).id

    async def send_to(self, place: str, text: str, *, sender: str) -> str:
        return self._shown(text, sender, place=place).id

    async def ask(self, question: str, *, options: Sequence[str], sender: str) -> str:
        return str((await self._asked(question, tuple(options), sender)).answer)

    async def react(self, message_id: str, emoji: str, *, sender: str) -> None:
        reactions = self._found(message_id).reactions
        reactions.append(emoji)
        del reactions[:-MOST_REACTIONS]
        self._changed()

    async def edit(self, message_id: str, text: str, *, sender: str) -> None:
        self._found(message_id).text = text
        self._changed()

    async def pin(self, message_id: str, *, sender: str) -> None:
        self._found(message_id).is_pinned = True
        self._changed()

    async def upload(self, name: str, data: bytes, *, media_type: str, sender: str) -> str:
        return self._shown(name, sender, data=data, media_type=media_type).id

    async def read(self, *, limit: int) -> list[ChannelMessage]:
        here = [message for message in self.messages if not message.place][-limit:]
        return [ChannelMessage(message.id, message.text, message.sender, message.at) for message in here]

    async def _approve(self, request: ApprovalRequest) -> Approved | Denied:
        answer = (await self._asked(request.text, (), request.sender, request)).answer
        return answer if isinstance(answer, (Approved, Denied)) else Denied()

    async def _asked(
        self, text: str, options: tuple[str, ...], sender: str, request: ApprovalRequest | None = None
    ) -> ChannelQuestion:
        question = ChannelQuestion(f"q{next(self._numbers)}", text, options, sender, request)
        self._questions[question.id] = question
        self._changed()
        try:
            await question.answered.wait()
        finally:
            del self._questions[question.id]
            self._changed()
        return question

    def _shown(
        self, text: str, sender: str, *, place: str = "", data: bytes | None = None, media_type: str = ""
    ) -> ShownMessage:
        id = f"m{next(self._numbers)}"
        message = ShownMessage(id, text, sender, time.time(), place=place, data=data, media_type=media_type)
        self.messages.append(message)
        self._changed()
        return message

    def _found(self, message_id: str) -> ShownMessage:
        for message in self.messages:
            if message.id == message_id:
                return message
        raise Refused(f"There is no message {message_id[:80]!r}. Use an id that send or read has given.")

    def _changed(self) -> None:
        for _ in oldest_beyond({each.id: each.bytes for each in self.messages}, MOST, MOST_BYTES):
            self.messages.popleft()
        if self._on_change is not None:
            self._on_change()


_OPERATIONS = [
    name.removeprefix("channel.")
    for name in OPERATIONS
    if name.startswith("channel.") and name not in ("channel.send", "channel.status")
] + ["approve"]


class CallbackChannel:
    """Calls functions of the program, plain or async, with the arguments of `FullChannel`'s methods.

    `send(text, *, sender)` is required. Further functions, by name, make `send_to`, `ask`, `react`, `edit`, `pin`,
    `upload`, `read` and `approve` possible. A plain function runs on the event loop and must not block. `name` is what
    policies call the channel.
    """

    def __init__(self, send: Callable[..., object], *, name: str = "", **functions: Callable[..., object]) -> None:
        unknown = functions.keys() - set(_OPERATIONS)
        if unknown:
            raise ArgumentError(f"A channel has no {min(unknown)!r}. It may have {', '.join(_OPERATIONS)}.")
        for operation, function in {"send": send, **functions}.items():
            if not callable(function):
                raise ArgumentError(f"CallbackChannel: {operation} is not a function: {function!r}.")
        self.name = name
        self._send = _awaited(send)
        for operation, function in functions.items():  # an attribute that is not there is an operation that is not
            setattr(self, operation, _awaited(function))

    async def send(self, text: str, *, sender: str) -> str | None:
        id = await self._send(text, sender=sender)
        return id if isinstance(id, str) else None


def _awaited(function: Callable[..., object]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: object, **options: object) -> Any:
        answer = function(*args, **options)
        return await answer if inspect.isawaitable(answer) else answer

    return call
