"""`toolcell.blocking` is the async API without `await`: the same names and parameters, and each works."""

import inspect
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import toolcell
from toolcell import (
    Annotations,
    ApprovalRequest,
    Approved,
    CallTask,
    Denied,
    HostContext,
    Session,
    SessionState,
    Supervisor,
    ToolContext,
    ValidationError,
    WorkspaceReturn,
    base_tools,
    blocking,
    host_tool,
    tool,
)

pytestmark = pytest.mark.anyio
OWN = {"close", "let_go"}  # of the blocking supervisor
INTERNAL = {"asked", "bytes", "is_kept", "known_result", "run"}  # of the supervisor's task


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


PAIRS: list[tuple[type, type, set[str]]] = [
    (Supervisor, blocking.Supervisor, set()),
    (Session, blocking.Session, set()),
    (CallTask, blocking.BlockingTask, INTERNAL),
]


@pytest.mark.parametrize(("one", "twin", "left_out"), PAIRS, ids=[one.__name__ for one, _, _ in PAIRS])
def test_each_public_name_is_there_with_the_same_parameters(one: type, twin: type, left_out: set[str]) -> None:
    assert public(twin) - (OWN - public(one)) == public(one) - left_out
    for name in [*(public(one) - left_out), *(["__init__"] if one is Supervisor else [])]:
        here, there = getattr(one, name), getattr(twin, name)
        assert isinstance(there, property) == isinstance(here, property), name
        if isinstance(here, property) and isinstance(there, property):
            assert (here.fset is None) == (there.fset is None), name
        else:
            assert parameters(here) == parameters(there), name
            assert not inspect.iscoroutinefunction(there), name


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def test_each_function_that_takes_a_session_is_there() -> None:
    assert parameters(toolcell.preload_memory)[1:] == parameters(blocking.preload_memory)[1:]


@tool(annotations=Annotations(idempotent=True))
def talk(ctx: ToolContext, times: int = 1) -> str:
    """Report, log and print."""
    for _ in range(times):
        ctx.progress("half", 0.5)
        ctx.log("a line", size=3)
        print("printed")
    return "said"


@tool(requires_approval=True)
def pay(amount: int) -> int:
    """Pay."""
    return amount


@host_tool(confirms=True)
async def confirmed(ctx: HostContext) -> bool:
    """Ask first."""
    return bool(ctx.confirm("Really?"))


class Heard:
    """Callbacks, plain or async, which note what they hear and where."""

    def __init__(self, is_async: bool) -> None:
        self.heard: list[str] = []
        self.threads: set[int] = set()
        self.on_progress: Any = self._later if is_async else self._now
        self.on_output: Any = self._later if is_async else self._now

    def _now(self, *said: object) -> None:
        self.heard.append(str(said[-1]).strip())
        self.threads.add(threading.get_ident())

    async def _later(self, *said: object) -> None:
        self._now(*said)

    def on_log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        self._now(message)


class Plain:
    def approve(self, request: ApprovalRequest) -> Approved | Denied:
        return Approved({"amount": 2})


class Later:
    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        return Approved({"amount": 2})


def mend(error: ValidationError) -> dict[str, Any]:
    return {"times": 1}


async def mend_later(error: ValidationError) -> dict[str, Any]:
    return mend(error)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_each_method_works_with_callbacks_of_either_kind(is_async: bool, tmp_path: Path) -> None:
    repair, approver = (mend_later, Later()) if is_async else (mend, Plain())
    with blocking.Supervisor([*base_tools(), talk, pay, confirmed], standby=0) as supervisor:
        assert supervisor.status() and supervisor.nodes() == [] and supervisor.metrics.totals() == (0, {})
        session = supervisor.open_session("main", workspace=tmp_path)

        def heard(call: Callable[..., Any], *given: Any, on_log: bool = True, **options: Any) -> Any:
            said = Heard(is_async)
            options |= {"on_progress": said.on_progress, "on_output": said.on_output}
            result = call(*given, **options, **({"on_log": said.on_log} if on_log else {}))
            result = result.result() if isinstance(result, blocking.BlockingTask) else result
            assert {"0.5", "printed"} <= set(said.heard) and ("a line" in said.heard) is on_log
            assert threading.get_ident() not in said.threads
            return result

        assert heard(session.call, "talk").unwrap() == "said"
        assert heard(session.retry, "talk", on_log=False, attempts=2, call_id="r").call_id == "r"
        (result,) = heard(session.call_many, [("talk", {})], on_log=False, max_concurrent=1)
        assert result.unwrap() == "said"
        assert heard(session.start, "talk", {"times": "x"}, on_log=False, repair=repair).unwrap() == "said"
        assert session.call("talk", {"times": "x"}, repair=repair).unwrap() == "said"
        assert session.call("pay", {"amount": 1}, approver=approver).unwrap() == 2

        confirmation = session.call("confirmed").confirmation
        supervisor.approvals.approve(confirmation, by="a test")
        assert session.call_again(confirmation, timeout=30, call_id="again").unwrap() is True

        task = session.start("talk", task_id="t", call_id="c")
        assert (task.id, task.call_id, task.session_id) == ("t", "c", session.id)
        assert supervisor.task("t").result().unwrap() == "said" and task.status == "finished"
        task.cancel()

        session.values, session.config, session.invocation_id = {"a": 1}, {"b": 2}, "turn"
        assert (session.values, session.config, session.invocation_id) == ({"a": 1}, {"b": 2}, "turn")
        assert session.explain("talk").decision == "allow" and "talk" in {each.name for each in session.tools()}
        assert session.bring_back() == WorkspaceReturn()
        child = session.open_child("branch", context="so far")
        assert isinstance(child, blocking.Session) and isinstance(child.parent, blocking.Session)
        assert (child.context, child.parent.id) == ("so far", session.id)
        child.suspend(grace_s=0)
        assert supervisor.suspended_sessions() == [child.id] and child.state is SessionState.SUSPENDED
        assert supervisor.resume_session(child.id).id == child.id
        child.suspend()
        child.resume()
        session.allow_urls(["https://example.org/"])
        assert child.close(outcome="failed", summary="enough").outcome is SessionState.FAILED
        by_name: Any = blocking.preload_memory
        assert blocking.preload_memory(session, "nothing") == by_name(session=session, query="no") == ""
    assert session.close().outcome is SessionState.COMPLETED
    assert session.closed and task.result().unwrap() == "said"


@pytest.mark.parametrize("approver", [Plain(), Later()], ids=["plain", "async"])
async def test_an_approver_of_the_async_api_may_be_plain(approver: Any, tmp_path: Path) -> None:
    async with Supervisor([pay], approver=approver, standby=0) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        assert (await session.call("pay", {"amount": 1})).unwrap() == 2
        assert (await session.call("pay", {"amount": "x"}, repair=lambda error: {"amount": 1})).unwrap() == 2
