"""Handlers of os.register_at_fork are kept back until a process needs them: run in each fork, they write to 140 pages.

`threading` and `logging` release locks that other threads held; there are no other threads before a call runs. `random`
draws a new seed; `serve.fresh_randomness` does that.
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
    """From now on, handlers are kept. Call it before anything is imported that registers some."""
    os.register_at_fork = _keep  # type: ignore[assignment]
    with suppress(TypeError):
        _register(before=None)  # refused; but the first use sets up what looks at its arguments, here, not in each call


def stop() -> None:
    """From now on, handlers are registered again: those of a tool's module are for every fork, as it expects."""
    os.register_at_fork = _register


def _before() -> None:
    _run("before", reversed(_kept))  # the last comes first (os.register_at_fork)


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
"""In a call process, where the tool may start threads and fork: have those that were kept run at each fork."""
