"""Confirmation from within a tool: `ctx.confirm` asks, and the call runs again with the answer. It is the same in a
cell and in the supervisor's process."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .encode import encode_json
from .failures import UsageError
from .interrupts import leaves_of

__all__ = ["Confirmation", "ConfirmationAsked", "ConfirmationAsker", "asked_in", "given_or_asked", "went_on"]

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


def asked_in(error: BaseException) -> ConfirmationAsked | None:
    """The question with which a tool has ended, also if one of its tasks has asked."""
    return next((one for one in leaves_of(error) if isinstance(one, ConfirmationAsked)), None)


class ConfirmationAsker(Protocol):
    """The reporter of a call. `has_asked` is whether `ctx.confirm` has asked in this call."""

    has_asked: bool


def given_or_asked(
    asker: ConfirmationAsker, tool: str, given: Iterable[Mapping[str, Any]] | None, hint: object, payload: object
) -> Confirmation:
    """The answer to this question among those given. Raises ConfirmationAsked if it is not there, and UsageError for a
    tool that does not declare that it confirms. None is given to such a tool."""
    if given is None:
        raise UsageError(f"The tool {tool!r} calls ctx.confirm without declaring it. Declare confirms=True.")
    text, plain = str(hint), encode_json(payload)
    if len(text) > HINT_CHARS:  # a part of a question is another question
        raise UsageError(f"The hint of ctx.confirm is longer than {HINT_CHARS:,} characters. Ask in fewer words.")
    if len(repr(plain)) > PAYLOAD_CHARS:
        raise UsageError(f"The payload of ctx.confirm is longer than {PAYLOAD_CHARS:,} characters. Pass a summary.")
    for each in given:
        if each["hint"] == text and each["payload"] == plain:
            return Confirmation(each["confirmed"] is True, each["answer"], each["message"])
    asker.has_asked = True
    raise ConfirmationAsked(text, plain)


def went_on(tool: str) -> UsageError:
    """The error of a tool that has asked and did not end."""
    return UsageError(
        f"The tool {tool!r} caught the exception by which ctx.confirm ends the call, and went on. Catch Exception "
        "instead of BaseException, and do not gather exceptions."
    )
