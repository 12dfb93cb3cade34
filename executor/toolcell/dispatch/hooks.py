"""Hooks: the user's own code before and after each call. They form an ordered chain, and every hook is called.

Any denial wins. Replacement is explicit: a returned call or result replaces the present one, for the later hooks too. A
hook that raises fails closed: before the call, the call is denied; after the call, the result is withheld. The close of
the session ends a running hook with the same effect.
"""

import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple, cast

import anyio

from toolcell.backends.threads import HOOKS, Threads
from toolcell.rules.call import ToolCall
from toolcell.rules.misuse import count, items
from toolcell.sessions.session_result import SessionResult
from toolcell.sessions.tree import SessionLife
from toolcell.store.journal.arguments import digest_of
from toolcell.wire.protocol import result_fits
from toolcell_sandbox.limits import Limits
from toolcell_tools.definition import Tool
from toolcell_tools.encode import encode_json
from toolcell_tools.errors import Cancelled, ErrorBase, ExecutionError, PermissionDenied
from toolcell_tools.failures import Unencodable
from toolcell_tools.interrupts import Guard
from toolcell_tools.result import ToolResult
from toolcell_tools.returned import encode_return
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.signals import checked_signals
from toolcell_tools.signature import is_async

from .call_errors import closed, limit_exceeded, withheld
from .validate import OutputSchema

_log = logging.getLogger("toolcell.hooks")
_ENDED: Final = object()
"""The answer of a hook that was ended with its session."""
_FACTS = ("call_id", "tool", "version", "session_id", "arguments", "notices", "usage", "sandbox", "confirmation")


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


async def answer_of(method: Callable[..., Any], *given: Any, timeout_s: float, threads: Threads = HOOKS) -> Any:
    """What a method of the program's returns. Raises TimeoutError. A plain method runs in one of the threads, and is
    left there if it takes too long."""
    with anyio.fail_after(timeout_s):
        async with Guard():
            if is_async(method):
                return await method(*given)
            answer = await threads.run(partial(method, *given), abandon=True)
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


def left_by_hooks(result: ToolResult, tool: Tool[..., Any], limits: Limits, schema: OutputSchema | None) -> ToolResult:
    """The result as the hooks left it, if a tool could have returned it; else an error with the reason.

    `schema` is None if the output need not fit one: the schema does not cover a failure that is returned as a result.
    """
    artifacts = [one if one.uri is None else replace(one, uri=None) for one in result.artifacts]
    bare, error = result.model_copy(update={"error": None, "artifacts": artifacts, "signals": ()}), result.error
    try:
        checked_signals(tool.name, tool.signals, result.signals)
        payload = encode_return(bare)
        payload["values"] = encode_json(result.values)
        if error is not None:
            payload["error"] = said = cast("dict[str, Any]", encode_json(error.model_dump()))
            if isinstance(error, ExecutionError):
                error = error.model_copy(update={"data": said["data"]})
    except Unencodable as refusal:
        return withheld(result, ExecutionError(message=f"The result that a hook put in is none: {refusal}"))
    if not result_fits(payload, limits.result_bytes):
        return withheld(result, limit_exceeded("result", tool.name, limits))
    if result.error is None and schema is not None:
        misfit = schema.misfit(payload["output"], "A hook")
        if misfit is not None:
            return withheld(result, misfit)
    signals = () if result.error is not None else result.signals
    shown = {"output": payload["output"], "display": payload["display"]}
    return result.model_copy(update={**shown, "error": error, "signals": signals})


MOST_SESSIONS: Final = 10_000
"""The most sessions whose last call is known. The session that has called least recently is forgotten first."""


class RepeatGuard(Hook):
    """Denies a call that repeats the session's last calls: the same tool with the same arguments.

    `most` identical calls in a row may run, the first included (default: 3). Any other call of the session begins a new
    count. `except_tools` names tools that may be repeated, such as one that asks for the progress of a job.
    """

    def __init__(self, most: int = 3, except_tools: Iterable[str] = ()) -> None:
        self._most = count("most", most, "Pass how many identical calls in a row may run.")
        self._except = frozenset(map(str, items("except_tools", except_tools, "['status']")))
        self._last: OrderedDict[str, tuple[tuple[str, str], int]] = OrderedDict()

    async def before_call(self, call: ToolCall) -> Deny | None:
        """Deny the call if it is one identical call too many."""
        if call.session is None or call.tool in self._except:
            return None
        asked, session_id = (call.tool, digest_of(call.arguments)), call.session.session_id
        before, times = self._last.get(session_id, (asked, 0))
        times = times + 1 if before == asked else 1
        self._last[session_id] = asked, times
        self._last.move_to_end(session_id)
        if len(self._last) > MOST_SESSIONS:
            self._last.popitem(last=False)
        if times <= self._most:
            return None
        return Deny(
            f"The tool {call.tool!r} was called with the same arguments {times} times in a row, and at most "
            f"{self._most} such calls may run. Use what the earlier results say, change the arguments, or do something "
            "else."
        )
