"""A channel of functions: each operation that has a function is possible."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from toolcell.errors import ArgumentError
from toolcell_tools.handles import OPERATIONS

__all__ = ["CallbackChannel"]

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
