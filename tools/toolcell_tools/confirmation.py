"""Confirmation from within a tool: `ctx.confirm` asks, and the call runs again with the answer."""

from dataclasses import dataclass
from typing import Any

from .interrupts import leaves_of

__all__ = ["Confirmation", "ConfirmationAsked"]


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
