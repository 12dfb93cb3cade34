"""Tell what interrupts the program from what its code, called by toolcell, has merely raised.

`Session.call` never raises for what a host tool, a hook, a channel, a store or a callback does. `except Exception` is
not enough: a CancelledError may come from the caller's own task, or from another task that the code awaits, and the
exception does not say which. Two facts decide: asyncio counts the cancellation requests of each task
(`Task.cancelling`), and a cancelled scope of anyio or trio cancels again at the next checkpoint. Every other exception
that is no Exception becomes one, `Escaped`, so that each place handles it as it handles any failure.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import asyncio

__all__ = ["Escaped", "Guard", "asyncio_task", "cause_of", "described", "leaves_of", "members_of", "pass_on"]


class Escaped(Exception):
    """An exception of the program's code that is no Exception and interrupts nobody. `__cause__` is that exception."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(described(cause))
        self.__cause__ = cause


class Guard:
    """A context for code of the program that is awaited. It raises the caller's own cancellation, also if the code has
    swallowed it, and passes on what ends the program. Any other BaseException leaves it as `Escaped`. A cancellation
    that the code has requested and taken back (`Task.uncancel`) is not delivered later.

    With `contains_exit`, a SystemExit of the main thread does not end the program either.
    """

    __slots__ = ("_before", "_contains_exit", "_task")

    def __init__(self, *, contains_exit: bool = False) -> None:
        self._contains_exit = contains_exit

    async def __aenter__(self) -> None:
        self._task = asyncio_task()
        self._before = 0
        if self._task is not None:  # a request that is not delivered yet must pass too
            undelivered = bool(getattr(self._task, "_must_cancel", False))  # anyio reads it too
            self._before = self._task.cancelling() - undelivered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and ends_program(error, exits=not self._contains_exit):
            return
        from asyncio import CancelledError  # these imports are here, because cells import this module

        import anyio

        is_exception = error is None or isinstance(error, Exception)
        if anyio.current_effective_deadline() == -math.inf:
            if not is_exception:
                await anyio.lowlevel.checkpoint_if_cancelled()  # raises what the cancelled scope catches
        elif self._task is not None:
            if self._task.cancelling() <= self._before and getattr(self._task, "_must_cancel", False):
                with suppress(CancelledError):  # before Python 3.13, `uncancel` does not withdraw it
                    await anyio.lowlevel.checkpoint()
            if self._task.cancelling() > self._before:
                raise CancelledError from error
        if not is_exception:
            raise Escaped(cast("BaseException", error))


def ends_program(error: BaseException, *, exits: bool = True) -> bool:
    """Whether the exception is Ctrl-C, the exit of the main thread or the close of a coroutine, or a group with one."""
    for one in leaves_of(error):
        if isinstance(one, SystemExit):
            if exits and threading.current_thread() is threading.main_thread():
                return True
        elif isinstance(one, (KeyboardInterrupt, GeneratorExit)):
            return True
    return False


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The exception, or the members of a group and of the groups in it, each once, in order. Groups may be deep, and
    their shared members unfold to very many."""
    waiting, seen = [error], {id(error)}
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseExceptionGroup):
            yield one
            continue
        fresh = {id(member): member for member in members_of(cast("BaseException", one)) if id(member) not in seen}
        seen.update(fresh)
        waiting.extend(reversed(fresh.values()))


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The members of a group, whatever its class has as `exceptions`; none of any other exception."""
    if not isinstance(error, BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = cast("Any", BaseExceptionGroup).exceptions.__get__(error)
    return members


def pass_on(error: BaseException) -> None:
    """Raise again what ends the program. For the program's code that is not awaited, where no cancellation arrives."""
    if not isinstance(error, Exception) and ends_program(error):
        raise error


def cause_of(error: BaseException) -> BaseException:
    """The exception that the program's code has raised."""
    return error.__cause__ or error if isinstance(error, Escaped) else error


def described(error: BaseException) -> str:
    """The type and the text of the exception that the program's code has raised."""
    error = cause_of(error)
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except BaseException as broken:  # its __str__ is
        pass_on(broken)
        return type(error).__name__


def asyncio_task() -> "asyncio.Task[Any] | None":
    """The current task; None on trio."""
    import asyncio

    try:
        return asyncio.current_task()
    except RuntimeError:  # trio
        return None
