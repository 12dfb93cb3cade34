"""The part of `ctx.confirm` that is the same in a cell and in the supervisor's process: find the answer, or ask."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from .confirmation import Confirmation, ConfirmationAsked
from .encode import encode_json
from .failures import UsageError

__all__ = ["ConfirmationAsker", "given_or_asked", "went_on"]

HINT_CHARS: Final = 2_000
PAYLOAD_CHARS: Final = 16_000


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
