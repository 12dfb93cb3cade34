"""Hooks: the user's own code before and after each call. An ordered chain in which every hook is asked.

Any denial wins. Replacing is explicit: a returned call or result takes the place of the present one, for the hooks that
follow too. A hook that raises fails closed: before the call it denies it, after the call it withholds the result. The
close of the session ends a hook that is at work, in the same way.
"""

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

from toolcell.call import ToolCall
from toolcell.sessions.ending import SessionLife
from toolcell_tools.errors import Cancelled, ErrorBase, PermissionDenied
from toolcell_tools.result import ToolResult

from .approve import closed

__all__ = ["Deny", "Hook"]

_log = logging.getLogger("toolcell.hooks")
_ENDED: Final = object()
"""The answer of a hook that was ended with its session."""


@dataclass(frozen=True, slots=True)
class Deny:
    """What `before_call` returns to stop a call. The model reads `message`."""

    message: str


class Hook:
    """A base for hooks; one may also be any object that has some of these methods, plain or async.

    They run in the supervisor's process, on its event loop. `call.arguments` have been validated. A session that closes
    cancels the hooks of its calls; one that is asked after that, about a call that the close has ended, has `grace_s`.
    """

    async def before_call(self, call: ToolCall) -> ToolCall | Deny | None:
        """None lets the call go on; `call.with_arguments(…)` replaces its arguments. All that hooks leave is validated
        again, arguments that were changed in place as well."""

    async def after_call(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
        """Sees every result of a call that ran, errors too; a returned one takes its place.

        What all hooks leave is held to what any result is held to, the tool's output schema included; only then is an
        output that is too long for a model written to a file.
        """

    async def on_error(self, call: ToolCall, error: ErrorBase) -> ToolResult | None:
        """Sees the error of a call that ran and failed; a returned result takes its place."""


async def before(
    hooks: Sequence[object], life: SessionLife, call: ToolCall
) -> tuple[ToolCall, PermissionDenied | Cancelled | None]:
    """The call as the hooks leave it, and the first denial: Cancelled where the session closes meanwhile."""
    denial: PermissionDenied | None = None
    for hook in hooks:
        method = getattr(hook, "before_call", None)
        if method is None:
            continue
        try:
            answer = await _answered(life, hook, method(call))
            if answer is _ENDED:
                return call, closed(call.tool)
            if isinstance(answer, ToolCall) and (answer.id, answer.tool) != (call.id, call.tool):
                raise TypeError("before_call returned a call of another id or tool; it may replace arguments only")
            if not (answer is None or isinstance(answer, (ToolCall, Deny))):
                raise TypeError(f"before_call returned {answer!r}; it returns a ToolCall, a Deny or None")
        except Exception:
            _log.exception("hook %r failed before call %s of %s", hook, call.id, call.tool)
            answer = Deny(f"The call was stopped, because the hook {_name(hook)} failed.")
        if isinstance(answer, ToolCall):
            call = answer
        elif isinstance(answer, Deny) and denial is None:
            message = answer.message or f"The hook {_name(hook)} does not allow this call."
            denial = PermissionDenied(message=message, reason=f"hook {_name(hook)}")
    return call, denial


async def after(hooks: Sequence[object], life: SessionLife, call: ToolCall, result: ToolResult) -> ToolResult:
    """The result as the hooks leave it: `on_error` first where it is an error, then `after_call`."""
    for name in ("on_error", "after_call"):
        for hook in hooks:
            method = getattr(hook, name, None)
            if method is None or (name == "on_error" and result.error is None):
                continue
            try:
                given = method(call, result.error if name == "on_error" else result)
                answer = await _answered(life, hook, given)
                if answer is _ENDED:
                    message = (
                        "The call has run, but its result is withheld, because its session was closed while the hook "
                        f"{_name(hook)} had it."
                    )
                    return _with(result, error=Cancelled(message=message))
                if not (answer is None or isinstance(answer, ToolResult)):
                    raise TypeError(f"{name} returned {answer!r}; it returns a ToolResult or None")
                if answer is not None:  # again, since model_copy validates nothing
                    put_in: ToolResult = answer  # pyright: ignore[reportUnknownVariableType] - isinstance tells it of no R
                    answer = ToolResult.model_validate({key: getattr(put_in, key) for key in put_in.model_fields_set})
            except Exception:
                _log.exception("hook %r failed after call %s of %s", hook, call.id, call.tool)
                message = f"The call has run, but its result is withheld, because the hook {_name(hook)} failed."
                answer = _with(result, error=PermissionDenied(message=message, reason=f"hook {_name(hook)}"))
            if isinstance(answer, ToolResult):
                result = _identified(answer, result)
    return result


async def _answered(life: SessionLife, hook: object, answer: Any) -> Any:
    """What a hook answers, `_ENDED` where the close of the session ends it first."""
    if not inspect.isawaitable(answer):
        return answer
    with life.doing(f"the hook {_name(hook)}") as work, work.scope:
        if life.closed:  # nobody ends it any more
            work.scope.deadline = anyio.current_time() + life.grace_s
        return await answer
    return _ENDED


def _name(hook: object) -> str:
    return type(hook).__name__


def _with(result: ToolResult, error: PermissionDenied | Cancelled) -> ToolResult:
    return _identified(ToolResult(error=error), result)


def _identified(answer: ToolResult, result: ToolResult) -> ToolResult:
    """What a hook cannot change of a result: its call, its notices, its cost and its sandbox."""
    kept: dict[str, Any] = {name: getattr(result, name) for name in _FACTS}
    return answer.model_copy(update=kept)


_FACTS = ("call_id", "tool", "version", "session_id", "arguments", "notices", "usage", "sandbox")
