"""Hooks about sessions: opened, closed, suspended, resumed. They are told afterwards, and cannot change anything."""

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio

from toolcell.backends.threads import HOOKS
from toolcell_tools.interrupts import Guard
from toolcell_tools.signature import is_async

__all__ = ["answer_of", "tell"]

_log = logging.getLogger("toolcell.hooks")


async def answer_of(method: Callable[..., Any], *given: Any, timeout_s: float) -> Any:
    """What a hook's method returns. Raises TimeoutError. A plain method runs in a thread, and is left there if it takes
    too long."""
    with anyio.fail_after(timeout_s):
        async with Guard():
            if is_async(method):
                return await method(*given)
            answer = await HOOKS.run(partial(method, *given), abandon=True)
            return await answer if inspect.isawaitable(answer) else answer


async def tell(hooks: Sequence[object], timeout_s: float, name: str, *facts: Any) -> None:
    """Call the method `name` of each hook that has it, in order, for at most `timeout_s` seconds each. What a hook
    raises is logged."""
    for hook in hooks:
        method = getattr(hook, name, None)
        if method is None:
            continue
        try:
            await answer_of(method, *facts, timeout_s=timeout_s)
        except Exception:
            _log.exception("hook %r failed in %s", hook, name)
