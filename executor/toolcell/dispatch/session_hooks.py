"""Hooks about sessions: opened, closed, suspended, resumed. They are told afterwards, and cannot change anything."""

import inspect
import logging
from collections.abc import Sequence
from typing import Any

import anyio

__all__ = ["tell"]

_log = logging.getLogger("toolcell.hooks")


async def tell(hooks: Sequence[object], timeout_s: float, name: str, *facts: Any) -> None:
    """Call the method `name` of each hook that has it, in order, and await it for at most `timeout_s` seconds. What a
    hook raises is logged."""
    for hook in hooks:
        method = getattr(hook, name, None)
        if method is None:
            continue
        try:
            answer = method(*facts)
            if inspect.isawaitable(answer):
                with anyio.fail_after(timeout_s):
                    await answer
        except Exception:
            _log.exception("hook %r failed in %s", hook, name)
