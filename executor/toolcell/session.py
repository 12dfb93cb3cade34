"""Session: one agent conversation, as the program sees it. `runtime/core.py` holds its state."""

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Never, TypedDict, TypeVar, Unpack, overload

import anyio

from toolcell.dispatch.call_context import CallContext, CallFate, OnLog, OnOutput, OnProgress, Repair
from toolcell.dispatch.callbacks import in_callers_context
from toolcell.dispatch.pipeline import explain_call, traced
from toolcell.rules import misuse
from toolcell.rules.call import ToolCall
from toolcell.rules.limits import SessionUsage
from toolcell.rules.options import parameters_of
from toolcell.rules.policy import Explanation
from toolcell.rules.profile import Profile
from toolcell.runtime.opening import opening_of
from toolcell.runtime.options import ChildOptions
from toolcell.runtime.retrying import ATTEMPTS, FIRST_S, LONGEST_S, repeated
from toolcell.sessions.session_result import CallReport, SessionResult, SessionState
from toolcell.store.approvals import AnyApprover
from toolcell.wire.budget import is_beyond
from toolcell.wire.forks import OfOneProcess
from toolcell.workplaces.workspace_return import WorkspaceReturn
from toolcell_sandbox.errors import named
from toolcell_tools.artifact import Artifact
from toolcell_tools.capability import Capability, SessionKind
from toolcell_tools.declaration import Declared, ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.result import ToolResult

from .backends.threads import in_thread
from .dispatch.pipeline import attempt, dispatch
from .errors import UsageError
from .runtime.core import SessionCore
from .runtime.tasks import CallTask
from .sessions.idempotency import json_of

if TYPE_CHECKING:
    from toolcell.runtime.batch import AnyCall, BatchResult
    from toolcell_tools.context import HostContext as ToolsHostContext
    from toolcell_tools.exports import Export

    HostContext = ToolsHostContext["Session"]
    """The context of a host tool, whose session is a Session."""

R = TypeVar("R")


class CallOptions(TypedDict, total=False):
    """The keyword options of `Session.call`."""

    call_id: str | None
    timeout: float | None
    repair: Repair | None
    idempotency_key: str | None
    on_progress: OnProgress | None
    on_output: OnOutput | None
    on_log: OnLog | None
    approver: AnyApprover | None


class SessionProperties(OfOneProcess):
    """What a program reads and sets of a session, here and in `toolcell.blocking`."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core

    def _set(self, setter: Callable[[Any], None], value: Any) -> None:
        setter(value)
        self._core.changed()

    @property
    def id(self) -> str:
        return self._core.caller.id

    @property
    def kind(self) -> SessionKind:
        return self._core.caller.kind

    @property
    def agent_id(self) -> str:
        return self._core.caller.agent_id

    @property
    def line(self) -> tuple[str, ...]:
        """The agent ids from the root of the tree to `agent_id`, which is the last. A child of the same agent as its
        parent adds none. Policies, standing approvals and memory go by the line."""
        return self._core.caller.line

    @property
    def workspace(self) -> Path:
        return self._core.caller.workspace

    @property
    def grants(self) -> frozenset[Capability]:
        """The capabilities that the session's calls may be granted."""
        return self._core.caller.grants

    @property
    def usage(self) -> SessionUsage:
        """What the calls of this session and of those below it have used. If only a session above it has usage limits,
        it is the usage of that session."""
        meter = self._core.caller.meter
        return self._core.usage() if meter is None else meter.usage

    @property
    def state(self) -> SessionState:
        """Active, suspended, or how the session has ended."""
        return self._core.life.state

    @property
    def context(self) -> str:
        """The summary that the parent gave to this session, or ""."""
        return self._core.caller.data.info.context

    @property
    def user_id(self) -> str:
        """The person for whom the session works, or ""."""
        return self._core.caller.data.info.user_id

    @property
    def invocation_id(self) -> str:
        """The turn of the conversation for which calls are made, or "". A new one takes effect with the next call."""
        return self._core.caller.data.info.invocation_id

    @invocation_id.setter
    def invocation_id(self, invocation_id: str) -> None:
        misuse.check_text("invocation_id", invocation_id)
        self._set(self._core.caller.data.set_invocation, invocation_id)

    @property
    def reports(self) -> tuple[CallReport, ...]:
        """The calls of children that failed for good: their errors are not retryable, or their retries are used up. Of
        a session without a parent, also its own calls whose arguments did not fit three times in a row. The last
        100."""
        return tuple(self._core.caller.tally.reports)

    @property
    def results(self) -> tuple[SessionResult, ...]:
        """What children that have ended have left. The last 100."""
        return tuple(self._core.caller.tally.results)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The files that calls of this session, and of children that have ended, made or changed: the last 1,000 paths,
        without their data."""
        return self._core.caller.tally.artifacts

    @property
    def profile(self) -> Profile:
        """The profile that the kernel enforces in the session's cells. Its paths are resolved. It is no wider than the
        parent's."""
        return self._core.caller.profile

    @property
    def closed(self) -> bool:
        """Whether the session has ended. A suspended one has not."""
        life = self._core.life
        return life.closed and life.state is not SessionState.SUSPENDED

    @property
    def config(self) -> Mapping[str, Any]:
        """The mapping that tools get as `ctx.config`. A new one takes effect with the next call."""
        return self._core.caller.data.info.config

    @config.setter
    def config(self, config: Mapping[str, Any]) -> None:
        self._set(self._core.caller.data.set_config, config)

    @property
    def values(self) -> dict[str, Any]:
        """The values that tools get as `ctx.values`, including values that earlier calls have set. New values take
        effect with the next call.
        """
        return self._core.caller.data.info.values

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self._set(self._core.caller.data.set_values, values)


class Session(SessionProperties):
    """Made by `Supervisor.open_session` and `Session.open_child`. No tool or model can make `call` raise. It raises
    UsageError on a closed session, and the cancellation error if the caller's own task is cancelled."""

    def __init__(self, core: SessionCore) -> None:
        super().__init__(core)
        core.public = self

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def parent(self) -> "Session | None":
        above = self._core.parent
        return None if above is None else above.public

    def allow_urls(self, urls: Iterable[str]) -> None:
        """Let calls of this session, and of those below it, fetch these URLs. For a profile with the web rule "seen".

        A URL is compared as a whole, without its fragment. Raises UsageError for a URL that is never fetched, for more
        than 10,000 of them, and if no rule of the profile is about seen links.
        """
        self._core.check_open()
        self._core.allow_urls((urls,) if isinstance(urls, str) else urls)

    @overload
    async def call(
        self,
        name: Tool[..., ToolResult[R]] | Tool[..., Coroutine[Any, Any, ToolResult[R]]],
        args: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[R]: ...
    @overload
    async def call(
        self,
        name: Tool[..., Coroutine[Any, Any, R]],
        args: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[R]: ...
    @overload
    async def call(
        self, name: Tool[..., R], args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> ToolResult[R]: ...
    @overload
    async def call(
        self, name: str | Declared, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> ToolResult: ...
    async def call(
        self,
        name: str | Declared,
        args: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        timeout: float | None = None,
        repair: Repair | None = None,
        idempotency_key: str | None = None,
        on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None,
        on_log: OnLog | None = None,
        approver: AnyApprover | None = None,
        **others: Never,
    ) -> ToolResult:
        """Call a tool and wait for its result.

        `name` is the tool's name, or the tool itself: then a type checker finds misspelt names and knows the result's
        type. Either way, the tool that this session has under the name runs.
        `timeout` is the call's whole time in seconds, including the wait for a process. Without it, the tool's own
        timeout applies, or the profile's `wall_s`. `repair` is asked for better arguments after a validation error, at
        most twice. Calls with the same `idempotency_key` run once: later calls get the first one's result. If the first
        call ended with an error, the next one runs, unless the outcome of the first is unknown. If the first runs
        longer than the `timeout` of a later call, that one has a Timeout. The same key with another tool or other
        arguments is a UsageError. With a state directory, keys hold after a restart, in a session of the same id.
        `on_progress(message, fraction)` is called with the tool's progress. `on_output(stream, text)` is called live
        with the output of the call and its commands; `stream` is "stdout" or "stderr". The pieces come one at a time
        and in order, and the last one before the result. If an async `on_output` is too slow, some output is dropped,
        with a count in its place, and the result waits for it for up to 1 s. A plain function runs on the event loop
        and blocks all calls until it returns; the log warns of one that takes 0.1 s. `on_log(level, message, fields)`
        is called with what the tool logs, on the event loop. An exception of a callback is logged. `approver` is asked
        if the call needs approval, and neither the supervisor has an approver nor the session a channel that can
        approve.
        """
        core = self._core
        if core.caller.life.closed or not core.is_here():
            core.check_open()
        if others:
            misuse.check_names("Session.call", others, CallOptions)
        if timeout is not None:
            misuse.seconds("timeout", timeout, ", or None for the tool's own")
        if call_id is None:
            call_id = f"{core.prefix}-{next(core.numbers)}"
        elif type(call_id) is not str:
            misuse.check_texts(call_id=call_id)
        if on_progress is not None:
            misuse.check_callable("on_progress", on_progress)
            on_progress = in_callers_context(on_progress)
        if on_output is not None:
            misuse.check_callable("on_output", on_output)
            on_output = in_callers_context(on_output)
        if on_log is not None:
            misuse.check_callable("on_log", on_log)
            on_log = in_callers_context(on_log)
        if approver is not None:
            misuse.check_parts(approver=approver)
        if type(name) is not str:
            name = core.name_of(name)
        arguments: Mapping[str, Any] = {} if args is None else args
        context = CallContext(
            core.services,
            core.caller,
            core.routes,
            call_id,
            timeout,
            on_progress,
            on_output,
            self,
            on_log=on_log,
            approver=approver,
            taken=[],
            began=core.caller.malformed.begun(),
        )
        telemetry = core.services.telemetry
        if repair is None and idempotency_key is None:
            if telemetry is None:
                return await attempt(context, name, arguments)
            return await traced(telemetry, context, name, arguments)
        misuse.check_callable("repair", repair)
        misuse.check_keys(idempotency_key=idempotency_key)
        step = dispatch if telemetry is None else partial(traced, telemetry)
        if idempotency_key is None:
            return await step(context, name, arguments, repair)
        context = context._replace(fate=CallFate())
        asked = (name, json_of(arguments))
        wait_s = math.inf if timeout is None else timeout
        end = monotonic() + wait_s

        def in_time() -> Awaitable[ToolResult]:
            left_s = None if timeout is None else max(0.001, end - monotonic())
            return step(context._replace(timeout_s=left_s), name, arguments, repair)

        return await core.idempotent.once(idempotency_key, asked, in_time, call_id, context.fate, wait_s)

    async def call_again(self, confirmation: str, **options: Unpack[CallOptions]) -> ToolResult:
        """Make the call again that asked for this confirmation, `result.confirmation`, when it is answered. It has the
        same arguments, and the tool gets the answer from `ctx.confirm`. Raises UsageError if the request is not of this
        session, or is not answered."""
        core = self._core
        core.check_open()
        entry = await in_thread(partial(core.services.approvals().get, confirmation))
        asked = entry.request
        if asked is None or asked.asks != "confirmation" or asked.session_id != core.caller.id:
            raise UsageError(f"There is no request for confirmation {confirmation!r} of the session {core.caller.id}.")
        if entry.state not in ("approved", "denied"):
            raise UsageError(f"The request {entry.id} is {entry.state}. Answer it in supervisor.approvals first.")
        return await self.call(asked.tool, asked.arguments, **options)

    async def call_many(
        self,
        calls: "Iterable[AnyCall]",
        *,
        export: "Export | None" = None,
        max_concurrent: int | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None,
    ) -> "BatchResult":
        """Make many calls, side by side as far as cells and tools allow, and return their results in order.

        A call is a name with its arguments, a `ModelCall`, or with `export` the payload in which the provider's model
        asks for it. No failure of a call ends another one: each has its result, and a payload that is no call has a
        ValidationError. `BatchResult.messages()` has the results in the provider's format. At most `max_concurrent`
        calls run at the same time. The other options are those of `call`, for each of them. If the caller is cancelled,
        all calls are.
        """
        from toolcell.runtime.batch import (  # the exports take 10 ms, and few programs use both
            BatchResult,
            counted_as_malformed,
            lost,
            parsed,
            placeholder,
            refused,
        )
        from toolcell_tools.exports import ModelCall

        core = self._core
        core.check_open()
        asked = parsed(calls, export)
        results: dict[int, ToolResult] = {}
        most = len(asked) or 1 if max_concurrent is None else misuse.count("max_concurrent", max_concurrent, "")
        turns = anyio.CapacityLimiter(most)

        async def one(index: int, call: ModelCall) -> None:
            try:
                async with turns:
                    results[index] = await self.call(
                        call.name,
                        call.arguments,
                        call_id=call.call_id or None,
                        timeout=timeout,
                        on_progress=on_progress,
                        on_output=on_output,
                    )
            except anyio.get_cancelled_exc_class():
                if anyio.current_effective_deadline() == -math.inf:  # the batch is cancelled
                    raise
                # Otherwise the program's code has cancelled the task of this call. It must not end the others.

        with core.caller.malformed.batch():
            async with anyio.create_task_group() as tasks:
                for index, call in enumerate(asked):
                    if isinstance(call, ModelCall):
                        tasks.start_soon(one, index, call)
                    else:
                        results[index] = counted_as_malformed(refused(call, core.caller.id), core, export)
        ordered = tuple(results.get(index) or lost(call, core.caller.id) for index, call in enumerate(asked))
        return BatchResult(ordered, tuple(map(placeholder, asked)), export)

    async def retry(
        self,
        name: str | Declared,
        args: Mapping[str, Any] | None = None,
        *,
        attempts: int = ATTEMPTS,
        first_s: float = FIRST_S,
        longest_s: float = LONGEST_S,
        call_id: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None,
    ) -> ToolResult:
        """Make a call, and repeat it after Timeout and Overloaded if the tool is idempotent or read-only (ADR-0004).

        Nothing else is repeated: a repetition might do the work twice. There are at most `attempts` calls. Before each
        repetition it waits for a random part of `first_s`, which doubles up to `longest_s`, after an error's
        `retry_after_s`. `timeout` is for all of them together, in seconds; without it, each has the tool's own. The
        second call has the id "<call_id>~2".
        """
        core = self._core
        core.check_open()
        named = core.name_of(name)
        id = call_id or f"{core.prefix}-{next(core.numbers)}"

        async def run(number: int, left_s: float | None) -> ToolResult:
            return await self.call(
                named,
                args,
                call_id=id if number == 1 else f"{id}~{number}",
                timeout=left_s,
                on_progress=on_progress,
                on_output=on_output,
            )

        result = await repeated(
            run,
            is_idempotent=await core.is_idempotent(named),
            attempts=attempts,
            first_s=first_s,
            longest_s=longest_s,
            timeout=timeout,
        )
        if result.error is not None and result.error.retryable:
            core.caller.tally.failed(result.call_id, result.tool, result.error, for_good=True)
        return result

    def start(
        self,
        name: str | Declared,
        args: Mapping[str, Any] | None = None,
        *,
        task_id: str | None = None,
        call_id: str | None = None,
        timeout: float | None = None,
        repair: Repair | None = None,
        on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None,
    ) -> CallTask:
        """Start a call that goes on if the caller ends, and return at once. The options are those of `call`.

        `Supervisor.task(id)` finds the task again. With a state directory, that holds after a restart too: a task that
        had ended has its result, and a task that was interrupted has a Cancelled error, whose `outcome` says whether
        the call had begun. If the session has started a task with this `task_id` for the same call, that task is
        returned. The id of another call is a UsageError. `call_id` is the task's id if it is omitted.
        """
        core = self._core
        core.check_open()
        misuse.check_keys(task_id=task_id)
        misuse.check_texts(call_id=call_id)
        misuse.check_callable("repair", repair)
        misuse.check_callable("on_progress", on_progress)
        misuse.check_callable("on_output", on_output)
        if timeout is not None:
            misuse.seconds("timeout", timeout, ", or None for the tool's own")
        named = core.name_of(name)
        try:
            # The task begins later. It refuses arguments that are too large, so they are not copied.
            arguments: Mapping[str, Any] = {} if args is None else args if is_beyond(args) else deepcopy(args)
        except Exception as error:  # of an object of the program, or too deep
            raise UsageError(f"The arguments cannot be copied: {type(error).__name__}. Pass JSON data.") from error

        async def run(id: str) -> ToolResult:
            return await self.call(
                named,
                arguments,
                call_id=id,
                timeout=timeout,
                repair=repair,
                on_progress=on_progress,
                on_output=on_output,
            )

        return core.start_task(task_id, (named, arguments), call_id, run)

    @parameters_of(ChildOptions.__init__)
    async def open_child(self, *args: Any, **given: Any) -> "Session":
        """Open a child session. An omitted workspace, agent id, memory, client, config, user id or invocation id is
        this session's; a Branch borrows the channel. Without `profile`, the child gets the profile of its kind,
        narrowed to this session's. Another agent id is added to the line: what a policy denies to this session's agent,
        it denies to the child. `context` is a summary for the child, of at most 64 KiB: `session.context`, and
        `ctx.context` in tools. The child expires after `ttl_s` seconds; without it, by its kind.

        Raises UsageError for a child of a Worker, a Main child, a tree more than 4 deep and a ninth child.
        """
        core = self._core
        core.check_open()
        caller = core.caller
        above = {
            "workspace": caller.workspace,
            "agent_id": caller.agent_id,
            "config": caller.data.info.config,
            "user_id": self.user_id,
            "invocation_id": self.invocation_id,
        }
        options = ChildOptions(*args, **given)
        opening = opening_of(options, **{name: above[name] for name in above if getattr(options, name) is None})
        child = core.open_child(opening)
        session = Session(child)
        await child.prepare()
        return session

    async def explain(self, name: str | Declared, args: Mapping[str, Any] | None = None) -> Explanation:
        """Whether the policy and the session's capabilities allow this call, and the rule that decides, without making
        the call. Hooks are not asked. Raises UsageError for an unknown tool or arguments that do not validate."""
        core = self._core
        core.check_open()
        call = ToolCall(f"{core.caller.id}-explained", core.name_of(name), {} if args is None else args)
        return await explain_call(core.services, core.caller, core.routes, call)

    async def tools(self) -> list[ToolDeclaration]:
        """The declarations of the tools that this session may use: the supervisor's, then each toolset's, in order.

        Tools are left out if the policy denies them, or if they need a network, hosts or a search engine that the
        session does not have.

        Toolsets are asked again: call this before each request to a model. Raises ToolsetError, which names the toolset
        that failed; the previously offered tools can still be called. An untrusted module that claims the name of
        another tool is left out, with an incident in the journal that names both origins.
        """
        self._core.check_open()
        return await self._core.tools()

    @named
    async def suspend(self, *, grace_s: float | None = None) -> None:
        """Suspend the session and all below it: they hold no process, and refuse calls until they are resumed.

        Calls end as at `close`, but questions to approvers stay in `supervisor.approvals`: the same call, made again
        after the resumption, takes the answer. The time until the session expires stands still. With a state directory,
        the session can be resumed after a restart too, by `supervisor.resume_session`. Idempotent. Raises UsageError on
        a closed session, and with a state directory for a config that is not JSON data.
        """
        await self._core.suspend(misuse.grace(grace_s))

    async def resume(self) -> None:
        """Resume a suspended session. Those below it stay suspended. Raises UsageError if the session is not suspended,
        or if its parent is."""
        self._core.wake()
        await self._core.tell("on_resume")

    async def bring_back(self) -> WorkspaceReturn:
        """Write what the session has changed so far into its workspace here, if that was sent to a node of a cluster.
        Calls may run meanwhile; a file that they write at the moment is left out. Without a cluster, the changes are
        here already, and the report is empty. Raises UsageError on a closed session."""
        self._core.check_open()
        work = self._core.returning(last=False)
        return WorkspaceReturn() if work is None else await work()

    @named
    async def close(
        self,
        *,
        grace_s: float | None = None,
        outcome: Literal["completed", "failed"] | SessionState = SessionState.COMPLETED,
        summary: str = "",
    ) -> SessionResult:
        """End the session, its children and all their calls, and wait until they have ended. Calls of host tools end
        too, and so do running approvers, hooks and repairs. Idempotent.

        The result has `outcome` and `summary`, what the session's calls have used and made, and the calls that failed
        for good. The parent has it in `results`, and its usage and artifacts include the child's. Sessions below are
        closed with the same outcome. On a closed session, the result of the first close is returned.

        A queued call is Cancelled at once. A tool that reads `ctx.cancelled` sees True, and has the profile's `grace_s`
        to clean up; in a child of the session it has 30 s. If it returns in that time, its result counts. Any other
        call is ended after 50 ms. The argument `grace_s` limits the grace of every call, in seconds: 0 ends all calls
        at once.
        """
        core = self._core
        if not core.life.closed and not core.is_here():
            core.check_running()
        if outcome not in (SessionState.COMPLETED, SessionState.FAILED):
            raise UsageError(f"A session cannot be closed as {outcome!r}. Pass 'completed' or 'failed'.")
        misuse.check_text("summary", summary)
        return await core.close(misuse.grace(grace_s), SessionState(outcome), summary)


def core_of(session: Session) -> SessionCore:
    """The core of a session, for other modules of this package and its tests."""
    return session._core  # pyright: ignore[reportPrivateUsage] - the one way in
