"""Hold back handlers of os.register_at_fork until a process needs them: in each fork, they would write to 140 pages.

The handlers of `threading` and `logging` release locks that other threads held, but before a call runs there are no
other threads. The handler of `random` draws a new seed, which `serve.fresh_randomness` does instead.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

_register = os.register_at_fork
_kept: list[dict[str, Callable[[], object]]] = []


def _keep(**handlers: Callable[[], object]) -> None:
    _kept.append(handlers)


def keep_back() -> None:
    """Hold back handlers from now on. Call this before the import of any module that registers some."""
    os.register_at_fork = _keep  # type: ignore[assignment]
    with suppress(TypeError):
        _register(before=None)  # refused, but the first use sets up its argument parser here, not in each call


def stop() -> None:
    """Register handlers again from now on: those of a tool's module run at every fork, as the module expects."""
    os.register_at_fork = _register


def _before() -> None:
    _run("before", reversed(_kept))  # the last registered runs first (os.register_at_fork)


def _after_in_parent() -> None:
    _run("after_in_parent", _kept)


def _after_in_child() -> None:
    _run("after_in_child", _kept)


def _run(moment: str, registered: Iterable[dict[str, Callable[[], object]]]) -> None:
    for handlers in registered:
        if moment in handlers:
            handlers[moment]()


resume: Callable[[], None] = partial(
    _register, before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
"""The step of a call process, whose tool may start threads and fork, that runs the held-back handlers at each fork."""
