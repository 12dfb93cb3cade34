"""What modules want done at a fork (os.register_at_fork), kept back until there is a process that may need it.

`threading` and `logging` mend the locks that other threads held, `random` draws anew. Up to the call process there are
no other threads, and `serve.fresh_randomness` sees to that; but run in each fork, these handlers write to 140 pages.
"""

import os
from collections.abc import Callable
from functools import partial

_register = os.register_at_fork
_kept: list[dict[str, Callable[[], object]]] = []


def _keep(**handlers: Callable[[], object]) -> None:
    _kept.append(handlers)


def keep_back() -> None:
    """From now on, handlers are kept. Call it before anything is imported that registers some."""
    os.register_at_fork = _keep  # type: ignore[assignment]


def stop() -> None:
    """From now on, handlers are registered again: those of a tool's module are for every fork, as it expects."""
    os.register_at_fork = _register


def kept() -> list[Callable[[], object]]:
    """What registers them in a call process, where the tool may start threads and fork."""
    return [partial(_register, **handlers) for handlers in _kept]
