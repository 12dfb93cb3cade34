"""What a model reads of an exception that a tool has raised: the same for a tool in a cell and for a host tool.

An exception group is shown by its members, because its own text only counts them: a group of one as that member, a
larger one with each member. `raise X from Y` shows Y too, unless X was written for the model or already quotes Y. A
ToolFailure keeps its data, and a refusal its kind, in a group and as a cause. The traceback is for the log.
"""

import traceback
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .encode import encode_json, in_utf8
from .failures import MissingCapability, NoTimeLeft, ProtectedName, RequestDenied, ToolFailure, Unencodable
from .interrupts import cause_of, members_of

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["MESSAGE_CHARS", "Raised", "invalid", "member_of", "raised", "type_shown"]

MESSAGE_CHARS: Final = 4_000
TRACEBACK_CHARS: Final = 20_000
TRACEBACK_FRAMES: Final = 40
TRACEBACK_EXCEPTIONS: Final = 100  # members, causes and contexts; traceback formats each, also a shared one again
TYPE_CHARS: Final = 100
MAX_MEMBERS: Final = 20  # of a group; a count stands for the others
MAX_SEEN: Final = 1_000  # members of a group that are looked at: shared members can unfold to very many
MAX_CAUSES: Final = 8
MIN_ROOM: Final = 100  # characters, for an exception with its cause
_WRITTEN = (ToolFailure, MissingCapability, ProtectedName, RequestDenied)
"""The exceptions whose message was written for the model."""


class Raised(NamedTuple):
    """The answer for an exception. `payload` has the traceback, and what the reason needs: "data", "capability" or
    "field". If the message quotes an exception, `payload["hidden"]` is the message without its text."""

    reason: str
    message: str
    payload: dict[str, Any]


def type_shown(name: str) -> str:
    """The name of an exception's type where its text is not shown. A tool can give a type any text as its name."""
    return name if len(name) <= TYPE_CHARS and name.isidentifier() else "An exception"


def member_of(error: BaseException) -> BaseException:
    """The exception itself, or the only member of a group, also of nested groups."""
    error = cause_of(error)
    while len(members := members_of(error)) == 1:
        error = cause_of(members[0])
    return error


def raised(error: BaseException, spent: Callable[[BaseException], str] = lambda _: "") -> Raised:
    """The answer for what a tool has raised. `spent` names the resource that an exception shows exhausted, "again" if
    only the supervisor can tell, or ""."""
    error = member_of(error)
    resource = next((name for one in _leaves(error) if (name := spent(one))), "")  # first: it may be free again soon
    message, hidden = _words(error, MESSAGE_CHARS), _words(error, MESSAGE_CHARS, hides=True)
    payload: dict[str, Any] = {"traceback": _traceback(error), **({"hidden": hidden} if hidden != message else {})}
    if resource not in ("", "again"):
        return Raised(resource, message, payload)
    found = [*_with_causes(error)]
    for one in found:
        if isinstance(one, MissingCapability):
            payload["capability"] = str(one.capability.value)
        if isinstance(one, (MissingCapability, ProtectedName, RequestDenied)):
            return Raised("permission", message, payload)
    failures = [one for one in found if isinstance(one, ToolFailure)]
    if failures:
        data = [one.data for one in _with_causes(error, past_data=False) if isinstance(one, ToolFailure)]
        data = [one for one in data if one is not None]
        payload["data"] = _sendable(data if len(data) > 1 else data[0] if data else None)
        return Raised("late" if isinstance(failures[0], NoTimeLeft) else "failure", message, payload)
    return Raised("unencodable" if isinstance(error, Unencodable) else resource or "exception", message, payload)


def invalid(error: "ValidationError") -> Raised:
    """The answer for arguments that a tool's own types refuse."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return Raised("arguments", _cut(in_utf8(f"{field}: {first['msg']}", "replace"), MESSAGE_CHARS), {"field": field})


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exception, or the members of a group and of the groups in it, in order."""
    waiting = [error]
    for _ in range(MAX_SEEN):
        if not waiting:
            return
        one = cause_of(waiting.pop())
        members = members_of(one)
        waiting.extend(reversed(members))
        if not members:
            yield one


def _with_causes(error: BaseException, *, past_data: bool = True) -> Iterator[BaseException]:
    """The members of an exception, then their causes, and so on; without `past_data`, not the causes of a failure with
    data, which stands for them. Bounded, because causes may form a circle."""
    following = [error]
    for _ in range(MAX_CAUSES):
        leaves = [*islice((one for each in following for one in _leaves(each)), MAX_SEEN)]
        yield from leaves
        if not past_data:
            leaves = [one for one in leaves if not isinstance(one, ToolFailure) or one.data is None]
        following = [one.__cause__ for one in leaves if one.__cause__ is not None]


def _words(error: BaseException, room: int, *, hides: bool = False, causes: int = MAX_CAUSES) -> str:
    """The exception in at most `room` characters. With `hides`, exceptions that were not written for the model are
    shown by their types only."""
    error = member_of(error)
    members = members_of(error)
    if members:
        return _words_of_several(error, members, room, hides=hides, causes=causes)
    if isinstance(error, _WRITTEN):
        return _cut(_text(error.message if isinstance(error, ToolFailure) else error), room)
    name, text = type(error).__name__, _text(error)
    if isinstance(error, Unencodable):
        return _cut(text, room)
    cause = error.__cause__
    while cause is not None and causes and not hides and _quotes(text, cause):
        cause, causes = cause.__cause__, causes - 1
    shown = f"{name}: {text}" if text else name
    own = f"{type_shown(name)} was raised. Its text is not shown." if hides else shown
    if cause is None or not causes or room < MIN_ROOM:
        return _cut(own, room)
    why = f" (caused by {_words(cause, room // 2, hides=hides, causes=causes - 1)})"
    return _cut(own, room - len(why)) + why


def _words_of_several(
    group: BaseException, members: tuple[BaseException, ...], room: int, *, hides: bool, causes: int
) -> str:
    heading = f"{len(members):,} exceptions" if hides else _cut(_text(group), room // 2)  # which has the number too
    if room < MIN_ROOM:
        return _cut(heading, room)
    named, more = members[:MAX_MEMBERS], len(members) - MAX_MEMBERS
    each = (room - len(heading)) // len(named) - 6
    said = [f"({number}) {_words(one, each, hides=hides, causes=causes)}" for number, one in enumerate(named, 1)]
    return _cut(f"{heading}: {' '.join(said)}{f' and {more:,} more' if more > 0 else ''}", room)


def _quotes(text: str, cause: BaseException) -> bool:
    """Whether the text of an exception has that of its cause in it."""
    quoted = "" if members_of(cause) else _text(cause)
    return quoted != "" and quoted in text


def _sendable(data: object) -> Any:
    try:
        return encode_json(data)
    except Unencodable as refusal:
        return f"(the data of the failure could not be sent: {refusal})"


def _text(value: object) -> str:
    try:
        text = str(value)
    except BaseException as broken:  # the tool's own __str__ may raise anything
        return f"(a message that could not be formatted: {type(broken).__name__})"
    return in_utf8(text[:TRACEBACK_CHARS], "replace")  # a text may be very long, and this may be the supervisor


def _cut(text: str, room: int) -> str:
    return text[: max(0, room)]


def _traceback(error: BaseException) -> str:
    """The last frames of the traceback. A runaway recursion has a million frames, which take minutes to format."""
    last: deque[TracebackType] = deque(maxlen=TRACEBACK_FRAMES)
    following = error.__traceback__
    while following is not None:
        last.append(following)
        following = following.tb_next
    try:
        shown = error.with_traceback(last[0] if last else None)
        related = _related(shown)
        if len(related) > TRACEBACK_EXCEPTIONS:
            own = "".join(traceback.format_tb(shown.__traceback__, limit=TRACEBACK_FRAMES))
            said = "".join(
                f"{type(one).__name__}: {_cut(_text(one), MESSAGE_CHARS)}\n" for one in related[:MAX_MEMBERS]
            )
            lines = f"{own}{said}(of more than {TRACEBACK_EXCEPTIONS:,} exceptions)\n"
        else:
            lines = "".join(traceback.format_exception(shown, limit=TRACEBACK_FRAMES))
    except BaseException as broken:  # the tool's own __str__ or __repr__ may raise anything
        return f"(the traceback of a {type(error).__name__} could not be formatted: {type(broken).__name__})"
    return in_utf8(lines[-TRACEBACK_CHARS:], "replace")


def _related(error: BaseException) -> list[BaseException]:
    """The exceptions that traceback would format, in no order that matters; at most one beyond the bound."""
    found: list[BaseException] = []
    waiting, seen = deque([error]), {id(error)}
    while waiting and len(found) <= TRACEBACK_EXCEPTIONS:
        one = waiting.popleft()
        found.append(one)
        following = [each for each in (one.__cause__, one.__context__) if each is not None and id(each) not in seen]
        seen.update(map(id, following))
        waiting.extend([*following, *islice(members_of(one), TRACEBACK_EXCEPTIONS)])  # a shared member counts again
    return found
