"""Confirmation from within a tool: `ctx.confirm` asks, and the call runs again with the answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .encode import encode_json
from .failures import UsageError

__all__ = ["Confirmation", "ConfirmationAsked"]

HINT_CHARS: Final = 2_000
PAYLOAD_CHARS: Final = 16_000


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The answer to `ctx.confirm`. `payload` is what the answering program passed along, and `message` its words."""

    confirmed: bool
    payload: Any = None
    message: str = ""

    def __bool__(self) -> bool:
        return self.confirmed


class ConfirmationAsked(BaseException):
    """Ends a call that waits for a confirmation. It is no Exception, so that a tool's `except Exception` lets it
    through."""

    def __init__(self, hint: str, payload: Any) -> None:
        super().__init__(hint)
        self.hint = hint
        self.payload = payload


def given_or_asked(tool: str, given: Iterable[Mapping[str, Any]] | None, hint: object, payload: object) -> Confirmation:
    """The answer to this question among those given. Raises ConfirmationAsked if it is not there, and UsageError for a
    tool that does not declare that it confirms. None is given to such a tool."""
    if given is None:
        raise UsageError(f"The tool {tool!r} calls ctx.confirm without declaring it. Declare confirms=True.")
    text, plain = str(hint)[:HINT_CHARS], encode_json(payload)
    if len(repr(plain)) > PAYLOAD_CHARS:
        raise UsageError(f"The payload of ctx.confirm is longer than {PAYLOAD_CHARS:,} characters. Pass a summary.")
    for each in given:
        if each["hint"] == text and each["payload"] == plain:
            return Confirmation(each["confirmed"] is True, each["answer"], each["message"])
    raise ConfirmationAsked(text, plain)
