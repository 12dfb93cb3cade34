"""Hooks: the user's own code before and after each call. They form an ordered chain, and every hook is called.

Any denial wins. Replacement is explicit: a returned call or result replaces the present one, for the later hooks too. A
hook that raises fails closed: before the call, the call is denied; after the call, the result is withheld. The close of
the session ends a running hook with the same effect.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

import anyio

from toolcell.rules.call import ToolCall
from toolcell.sessions.session_result import SessionResult
from toolcell.sessions.tree import SessionLife
from toolcell_tools.errors import Cancelled, ErrorBase, PermissionDenied
from toolcell_tools.result import ToolResult
from toolcell_tools.session_info import SessionInfo

from .approve import closed
from .session_hooks import answer_of

__all__ = ["Deny", "Hook"]

_log = logging.getLogger("toolcell.hooks")
_ENDED: Final = object()
"""The answer of a hook that was ended with its session."""


@dataclass(frozen=True, slots=True)
class Deny:
    """What `before_call` returns to stop a call. The model reads `message`."""

    message: str


class Hook:
    """A base class for hooks. Any object with some of these methods, plain or async, is a hook too.

    Async methods run on the supervisor's event loop, plain methods in a thread. `call.arguments` are valid. A hook that
    takes longer than the supervisor's `hook_timeout_s` has failed; its thread, if it has one, is not stopped. A closing
    session cancels the hooks of its calls. The hooks that then get the calls that the close has ended have `grace_s`
    seconds.
    """

    async def before_call(self, call: ToolCall) -> ToolCall | Deny | ToolResult | None:
        """Return None to let the call go on, `call.with_arguments(…)` to replace its arguments, a Deny to stop it, or a
        ToolResult in place of the call: a cached or simulated one.

        The arguments are validated again after all hooks, even if they were changed in place. A result counts only if
        no hook denies the call, the session holds what the tool needs, and the policy and the approver allow the call.
        It is checked like any other, and `after_call` gets it. The first result of several counts. A later hook or an
        approver that replaces the arguments discards it.
        """

    async def after_call(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
        """Called with every result of a call that ran, errors included. A returned result replaces it.

        After all hooks, the result is checked like any other, against the tool's output schema too. Only then is an
        output that is too long for a model saved to a file.
        """

    async def on_error(self, call: ToolCall, error: ErrorBase) -> ToolResult | None:
        """Called with the error of a call that ran and failed. A returned result replaces it."""

    async def on_session(
        self, session: SessionInfo, event: Literal["opened", "closed"], result: SessionResult | None
    ) -> None:
        """Called after a session was opened, and with its result after it was closed. What it raises is logged."""

    async def on_suspend(self, session: SessionInfo) -> None:
        """Called after a session was suspended."""

    async def on_resume(self, session: SessionInfo) -> None:
        """Called after a session was resumed."""


class HookedCall(NamedTuple):
    """A call as the hooks leave it. `result` is to take the place of the call, and `by` names its hook."""

    call: ToolCall
    denial: PermissionDenied | Cancelled | None = None
    result: ToolResult | None = None
    by: str = ""


async def before(hooks: Sequence[object], life: SessionLife, call: ToolCall, timeout_s: float) -> HookedCall:
    """The call as the hooks leave it. The denial is the first one, and Cancelled if the session closes meanwhile."""
    denial: PermissionDenied | None = None
    result: ToolResult | None = None
    by = ""
    for hook in hooks:
        method = getattr(hook, "before_call", None)
        if method is None:
            continue
        try:
            answer = await _answered(life, hook, method, (call,), timeout_s)
            if answer is _ENDED:
                return HookedCall(call, closed(call.tool, life))
            if isinstance(answer, ToolCall) and (answer.id, answer.tool) != (call.id, call.tool):
                raise TypeError("before_call returned a call of another id or tool; it may replace arguments only")
            if isinstance(answer, ToolResult):
                answer = _checked(cast("Any", answer))
            elif not (answer is None or isinstance(answer, (ToolCall, Deny))):
                raise TypeError(f"before_call returned {answer!r}; it returns a ToolCall, a Deny, a ToolResult or None")
        except Exception:
            _log.exception("hook %r failed before call %s of %s", hook, call.id, call.tool)
            answer = Deny(f"The call was stopped, because the hook {_name(hook)} failed.")
        if isinstance(answer, ToolCall):
            call, result = answer, None
        elif isinstance(answer, ToolResult):
            if result is None:
                result, by = answer, _name(hook)
        elif isinstance(answer, Deny) and denial is None:
            message = answer.message or f"The hook {_name(hook)} does not allow this call."
            denial = PermissionDenied(message=message, reason=f"hook {_name(hook)}")
    return HookedCall(call, denial, result, by)


async def after(
    hooks: Sequence[object], life: SessionLife, call: ToolCall, result: ToolResult, timeout_s: float
) -> ToolResult:
    """The result as the hooks leave it. For an error, `on_error` is called first, then `after_call`."""
    for name in ("on_error", "after_call"):
        for hook in hooks:
            method = getattr(hook, name, None)
            if method is None or (name == "on_error" and result.error is None):
                continue
            try:
                given = call, result.error if name == "on_error" else result
                answer = await _answered(life, hook, method, given, timeout_s)
                if answer is _ENDED:
                    message = (
                        "The call has run, but its result is withheld, because its session was closed while the hook "
                        f"{_name(hook)} had it."
                    )
                    return _with(result, error=Cancelled(message=message))
                if not (answer is None or isinstance(answer, ToolResult)):
                    raise TypeError(f"{name} returned {answer!r}; it returns a ToolResult or None")
                if isinstance(answer, ToolResult):
                    answer = _checked(cast("Any", answer))
            except Exception:
                _log.exception("hook %r failed after call %s of %s", hook, call.id, call.tool)
                message = f"The call has run, but its result is withheld, because the hook {_name(hook)} failed."
                answer = _with(result, error=PermissionDenied(message=message, reason=f"hook {_name(hook)}"))
            if isinstance(answer, ToolResult):
                result = _identified(answer, result)
    return result


def _checked(put_in: Any) -> ToolResult:
    """A hook's result, validated again, because model_copy validates nothing."""
    return ToolResult.model_validate({key: getattr(put_in, key) for key in put_in.model_fields_set})


async def _answered(
    life: SessionLife, hook: object, method: Callable[..., Any], given: tuple[object, ...], timeout_s: float
) -> Any:
    """A hook's answer, or `_ENDED` if the close of the session ends the hook first. Raises TimeoutError."""
    with life.doing(f"the hook {_name(hook)}") as work, work.scope:
        if life.closed:  # the close cannot end it any more
            work.scope.deadline = anyio.current_time() + life.grace_s
        return await answer_of(method, *given, timeout_s=timeout_s)
    return _ENDED


def _name(hook: object) -> str:
    return type(hook).__name__


def _with(result: ToolResult, error: PermissionDenied | Cancelled) -> ToolResult:
    return _identified(ToolResult(error=error), result)


def _identified(answer: ToolResult, result: ToolResult) -> ToolResult:
    """The hook's result, with the fields that a hook cannot change: call, notices, usage and sandbox."""
    kept: dict[str, Any] = {name: getattr(result, name) for name in _FACTS}
    return answer.model_copy(update=kept)


_FACTS = ("call_id", "tool", "version", "session_id", "arguments", "notices", "usage", "sandbox", "confirmation")
