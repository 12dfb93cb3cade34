"""The errors of this package: `SandboxError` for a step that failed, and a ValueError for wrong arguments, whose class
the embedding program chooses."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])

_COROUTINE = 0x80  # inspect.CO_COROUTINE
_kinds: "list[type[ValueError]]" = [ValueError]


class SandboxError(Exception):
    """A step of entering the sandbox, or its probe, failed. No code ran unconfined.

    `step` names the step, `mechanism` the kernel mechanism (may be empty), `errno` is the kernel's error (0 if none),
    and `cure` the remedy. The message is "what happened: value. what to do."
    """

    def __init__(self, what: str, *, step: str, mechanism: str = "", errno: int = 0, cure: str = "") -> None:
        self.what = what if not errno else f"{what}: {os.strerror(errno)} (errno {errno})"
        self.step = step
        self.mechanism = mechanism
        self.errno = errno
        self.cure = cure
        super().__init__(f"{self.what}. {cure}" if cure else f"{self.what}.")


def refuse_with(kind: "type[ValueError]") -> None:
    """Use this class of ValueError in the whole process from now on."""
    _kinds[0] = kind


def refusal(message: str) -> ValueError:
    """The exception to raise. The message says what is wrong and what to pass instead."""
    return _kinds[0](message)


def refusing(cls: "type[T]") -> "type[T]":
    """A class decorator: a dataclass refuses wrong values and unknown fields with the program's exception."""
    make: Callable[..., None] = named(cls.__init__)

    @wraps(make)
    def init(self: "T", *args: "Any", **values: "Any") -> None:
        try:
            make(self, *args, **values)
        except ValueError as error:
            raise refusal(str(error)) from None

    setattr(cls, "__init__", init)  # noqa: B010 - checkers take an assignment for a mistake
    return cls


def named(function: "F") -> "F":
    """A decorator: a function refuses an unknown argument, with the near name, and a missing one."""

    def checked(*args: "Any", **values: "Any") -> "Any":
        try:
            return function(*args, **values)
        except TypeError:
            _refuse_misfit(function, args, values)
            raise

    async def awaited(*args: "Any", **values: "Any") -> "Any":
        try:
            return await function(*args, **values)
        except TypeError:
            _refuse_misfit(function, args, values)
            raise

    is_async = function.__code__.co_flags & _COROUTINE
    return wraps(function)(awaited if is_async else checked)  # type: ignore[return-value]


def unknown(function: str, name: str, names: "Sequence[str]") -> str:
    """The message about an argument that a function does not take."""
    from difflib import get_close_matches  # milliseconds, only after a mistake

    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
    return f"{function} takes no {name!r}. {hint}"


def _refuse_misfit(function: "Callable[..., Any]", args: "Sequence[Any]", values: "Mapping[str, Any]") -> None:
    """Refuse arguments that do not fit the signature."""
    import inspect  # milliseconds, too

    signature = inspect.signature(function)
    try:
        signature.bind(*args, **values)
    except TypeError as error:
        owner = function.__qualname__.removesuffix(".__init__").rpartition("<locals>.")[2]
        names = [name for name in signature.parameters if name != "self"]
        for name in values:
            if name not in names:
                raise refusal(unknown(owner, name, names)) from None
        how = ", ".join(names) or "no arguments"
        raise refusal(f"{owner}: {error}. It takes: {how}.") from None
