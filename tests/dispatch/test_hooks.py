"""Hooks: the order, denial, explicit replacement, failing closed, and values shared with the tool."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import (
    Approved,
    Artifact,
    Denied,
    Deny,
    ExecutionError,
    Hook,
    PermissionDenied,
    PermissionTier,
    RecentJournal,
    SandboxUnavailable,
    TierPolicy,
    ToolCall,
    ToolContext,
    ToolFailure,
    ToolResult,
    Usage,
    base_tools,
    host_tool,
    tool,
)
from toolcell_tools import TextBlock
from toolcell_tools.errors import ErrorBase

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough: nothing here waits in a way of its own."""
    return "asyncio"


def add(ctx: ToolContext, a: int, b: int = 0) -> int:
    """Add two numbers."""
    ctx.values["seen"] = ctx.values.get("from_hook")
    return a + b


def fail(text: str) -> str:
    """Fail."""
    raise ToolFailure(text)


TOOLS = [add, fail]


class Witness(Hook):
    """Writes down what it sees; answers what it is told to."""

    def __init__(self, log: list[str], name: str, **answers: Any) -> None:
        self.log = log
        self.name = name
        self.answers = answers

    async def before_call(self, call: ToolCall) -> Any:
        self.log.append(f"{self.name} before {dict(call.arguments)}")
        answer = self.answers.get("before")
        return answer(call) if callable(answer) else answer

    async def after_call(self, call: ToolCall, result: ToolResult) -> Any:
        self.log.append(f"{self.name} after {str(result.output)[:100]}")
        answer = self.answers.get("after")
        return answer(result) if callable(answer) else answer

    async def on_error(self, call: ToolCall, error: ErrorBase) -> Any:
        self.log.append(f"{self.name} error {error.message}")
        return self.answers.get("error")


async def called(supervise: Any, workspace: Path, hooks: list[object], name: str, args: dict[str, Any]) -> ToolResult:
    async with supervise(TOOLS, hooks=hooks) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result: ToolResult = await session.call(name, args)
        return result


async def test_hooks_run_in_order_and_see_what_the_one_before_made_of_it(supervise: Any, workspace: Path) -> None:
    log: list[str] = []
    one = Witness(
        log,
        "one",
        before=lambda call: call.with_arguments({"a": call.arguments["a"] + 1}),
        after=lambda result: ToolResult(output=result.output * 10),
    )
    two = Witness(log, "two")
    result = await called(supervise, workspace, [one, two], "add", {"a": 1})
    assert result.arguments == {"a": 2}, "those that it ran with"
    assert result.output == 20 and result.call_id and result.usage.wall_s > 0 and result.tool == "add"
    assert log == ["one before {'a': 1}", "two before {'a': 2}", "one after 2", "two after 20"]


async def test_any_denial_wins_and_all_hooks_are_asked(supervise: Any, workspace: Path) -> None:
    log: list[str] = []
    hooks = [Witness(log, "one", before=Deny("not on Sundays")), Witness(log, "two")]
    result = await called(supervise, workspace, list(hooks), "add", {"a": 1})
    assert isinstance(result.error, PermissionDenied) and result.error.message == "not on Sundays"
    assert "Witness" in result.error.reason
    assert log == ["one before {'a': 1}", "two before {'a': 1}"]


async def test_replaced_arguments_are_validated_and_the_model_is_not_asked_to_mend_them(
    supervise: Any, workspace: Path
) -> None:
    hook = Witness([], "one", before=lambda call: call.with_arguments({"a": "two"}))
    asked: list[object] = []

    async def repair(error: object) -> dict[str, Any]:
        asked.append(error)
        return {"a": 1}

    async with supervise(TOOLS, hooks=[hook]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("add", {"a": 1}, repair=repair)
    assert result.error is not None and result.error.kind == "validation" and not result.error.retryable
    assert "a hook" in result.error.message and asked == []


async def test_arguments_that_are_changed_in_place_are_validated_too(supervise: Any, workspace: Path) -> None:
    class InPlace:
        def __init__(self, value: object) -> None:
            self.value = value

        async def before_call(self, call: ToolCall) -> None:
            call.arguments["a"] = self.value  # type: ignore[index]  # pyright: ignore[reportIndexIssue]

    assert (await called(supervise, workspace, [InPlace(5)], "add", {"a": 1})).output == 5
    error = (await called(supervise, workspace, [InPlace("five")], "add", {"a": 1})).error
    assert error is not None and error.kind == "validation" and error.message.startswith("The arguments that a hook")


@pytest.mark.parametrize(
    "answer",
    [42, lambda call: ToolCall(call.id, "fail", {"text": "x"}), lambda call: 1 / 0],
    ids=["no call", "another tool", "raises"],
)
async def test_a_hook_that_fails_before_a_call_denies_it(answer: Any, supervise: Any, workspace: Path) -> None:
    result = await called(supervise, workspace, [Witness([], "one", before=answer)], "add", {"a": 1})
    assert isinstance(result.error, PermissionDenied) and "hook" in result.error.message
    assert "division" not in result.error.message


async def test_a_result_that_a_hook_puts_in_keeps_what_is_known_of_its_call(supervise: Any, workspace: Path) -> None:
    log: list[str] = []
    real = await called(supervise, workspace, [Witness(log, "one")], "add", {"a": 1})
    forged = ToolResult(
        output=9,
        call_id="another",
        tool="rm",
        version="9",
        session_id="theirs",
        arguments={"a": 7},
        usage=Usage(wall_s=9),
    )
    result = await called(supervise, workspace, [Witness(log, "one", after=forged)], "add", {"a": 1})
    assert result.output == 9
    assert result.sandbox == real.sandbox and result.sandbox.on
    assert result.session_id.startswith("main-") and result.call_id == f"{result.session_id}-1"
    assert (result.tool, result.version, result.arguments) == ("add", real.version, {"a": 1})
    assert result.usage.wall_s not in (0, 9)


class Replaces(Hook):
    """Puts another directory in the workspace's place when it is told to."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.armed = False

    async def before_call(self, call: ToolCall) -> None:
        if self.armed:
            self.workspace.rename(self.workspace.with_name("old"))
            self.workspace.mkdir()


async def test_a_call_goes_to_the_directory_that_a_hook_has_put_in_the_workspaces_place(
    supervise: Any, workspace: Path
) -> None:
    hook = Replaces(workspace)
    async with supervise(base_tools(), hooks=[hook]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("write", {"path": "a.txt", "content": "a"})).error is None, "so that a cell waits"
        hook.armed = True
        assert (await session.call("write", {"path": "b.txt", "content": "b"})).error is None
    assert (workspace / "b.txt").read_text() == "b"
    assert [file.name for file in workspace.with_name("old").iterdir()] == ["a.txt"]


HELD: Any = 1


@pytest.mark.parametrize("who", ["a hook", "mutates"])
async def test_a_tool_that_cannot_be_sent_any_more_when_its_call_is_to_run_is_an_error_result(
    who: str, supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(*_: object) -> bool:
        monkeypatch.setitem(globals(), "HELD", held[0])
        return False

    def uses() -> str:
        """Use a global name."""
        return str(HELD)

    class Spoils(Hook):
        async def before_call(self, call: ToolCall) -> None:
            spoil()

    spoiled = tool(uses, mutates=spoil) if who == "mutates" else tool(uses)
    with open(os.devnull) as file:
        held: list[Any] = [1]
        async with supervise([spoiled], hooks=[Spoils()] if who == "a hook" else []) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            assert (await session.call("uses")).unwrap() == "1"
            held[0] = file
            result = await session.call("uses")
    assert isinstance(result.error, SandboxUnavailable) and "HELD" in result.error.message


@pytest.mark.parametrize("answer", [42, lambda result: 1 / 0], ids=["no result", "raises"])
async def test_a_hook_that_fails_after_a_call_withholds_its_result(
    answer: Any, supervise: Any, workspace: Path
) -> None:
    result = await called(supervise, workspace, [Witness([], "one", after=answer)], "add", {"a": 1})
    assert isinstance(result.error, PermissionDenied) and "has run" in result.error.message
    assert result.output is None and result.usage.wall_s > 0


async def test_on_error_may_recover(supervise: Any, workspace: Path) -> None:
    log: list[str] = []
    hook = Witness(log, "one", error=ToolResult(output="instead"))
    result = await called(supervise, workspace, [hook], "fail", {"text": "no such user"})
    assert result.output == "instead" and not result.is_error
    assert log == ["one before {'text': 'no such user'}", "one error no such user", "one after instead"]


async def test_without_an_answer_the_error_stands(supervise: Any, workspace: Path) -> None:
    result = await called(supervise, workspace, [Witness([], "one")], "fail", {"text": "no such user"})
    assert isinstance(result.error, ExecutionError) and result.error.message == "no such user"


async def test_any_object_with_one_of_the_methods_is_a_hook(supervise: Any, workspace: Path) -> None:
    class OnlyAfter:
        async def after_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
            assert call.declaration is not None and call.session is not None
            return ToolResult(output=[call.declaration.name, call.session.agent_id, result.output])

    result = await called(supervise, workspace, [OnlyAfter()], "add", {"a": 1, "b": 2})
    assert result.output == ["add", "agent", 3]


async def test_values_are_shared_between_hooks_and_tool(supervise: Any, workspace: Path) -> None:
    class Values:
        async def before_call(self, call: ToolCall) -> None:
            assert call.session is not None
            call.session.values["from_hook"] = "hello"

        async def after_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
            assert call.session is not None
            return ToolResult(output=call.session.values["seen"])

    result = await called(supervise, workspace, [Values()], "add", {"a": 1})
    assert result.output == "hello"


async def test_invalid_arguments_never_reach_a_hook(supervise: Any, workspace: Path) -> None:
    log: list[str] = []
    result = await called(supervise, workspace, [Witness(log, "one")], "add", {"a": "x"})
    assert result.error is not None and result.error.kind == "validation" and log == []


@dataclass
class Row:
    n: int


def row(n: int) -> Row:
    """A row."""
    if n < 0:
        raise ToolFailure("below zero", {"n": n})
    return Row(n)


def long_text() -> str:
    """A text that is too long for a model."""
    return "secret " * 20_000


ROWS = [tool(row, failure_mode="return"), long_text, fail, *base_tools()]


async def left(supervise: Any, workspace: Path, name: str, args: dict[str, Any], **answers: Any) -> ToolResult:
    async with supervise(ROWS, hooks=[Witness([], "one", **answers)]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result: ToolResult = await session.call(name, args)
        return result


async def test_a_result_that_a_hook_puts_in_is_held_to_the_output_schema(supervise: Any, workspace: Path) -> None:
    fits = await left(supervise, workspace, "row", {"n": 1}, after=ToolResult(output={"n": 5}))
    assert fits.unwrap() == {"n": 5} and fits.display == '{"n":5}'

    def in_place(result: ToolResult) -> None:
        result.output["n"] = "five"

    for answer in (ToolResult(output={"n": "five"}), in_place):
        result = await left(supervise, workspace, "row", {"n": 1}, after=answer)
        assert isinstance(result.error, ExecutionError) and result.error.data == {"path": "$.n"}
        assert result.error.message.startswith("A hook put in what the output schema of the tool 'row' does not allow")
        assert (result.output, result.display) == (None, "")


async def test_what_on_error_puts_in_is_held_to_it_too(supervise: Any, workspace: Path) -> None:
    result = await left(supervise, workspace, "row", {"n": -1})
    assert result.unwrap() == {"failure": {"n": -1}}, "a failure that is a result is none of its outputs"
    recovered = ToolResult(output="instead")
    assert (await left(supervise, workspace, "fail", {"text": "x"}, error=recovered)).unwrap() == "instead"
    changed = await left(supervise, workspace, "row", {"n": -1}, after=ToolResult(output="instead"))
    assert isinstance(changed.error, ExecutionError) and changed.error.data == {"path": "$"}


def deep(result: ToolResult) -> ToolResult:
    value: list[Any] = []
    for _ in range(70):
        value = [value]
    return result.model_copy(update={"output": value})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ToolResult(output=object()), "The result that a hook put in is none: $: an object cannot"),
        (deep, "nested more than 64 deep"),
        (ToolResult(content=[TextBlock(text="x")] * 10_001), "at most 10,000"),
        (ToolResult(output="x" * 2 * 2**20), "exceeded its limit on result"),
        (ToolResult(output="x", values={"much": "x" * 2 * 2**20}), "exceeded its limit on result"),
        (ToolResult(error=ExecutionError(message="no", data="x" * 2 * 2**20)), "exceeded its limit on result"),
        (ToolResult(error=ExecutionError(message="no", data={"o": object()})), "is none: $.data.o: an object cannot"),
        (ToolResult(error=ExecutionError(message="no", data=[2**70])), "is none: $.data[0]: an integer of more than"),
        (lambda result: result.model_copy(update={"content": ["no block"]}), "its result is withheld"),
    ],
    ids=["no data", "deep", "blocks", "large", "values", "error", "error of no data", "large number", "malformed"],
)
async def test_a_result_that_a_hook_puts_in_is_bounded_as_any_other(
    answer: Any, said: str, supervise: Any, workspace: Path
) -> None:
    result = await left(supervise, workspace, "fail", {"text": "x"}, after=answer)
    assert result.error is not None and said in result.error.message
    assert result.output is None and result.content == [] and result.values == {}


async def test_only_what_hooks_leave_is_written_to_a_file(supervise: Any, workspace: Path) -> None:
    whole = await left(supervise, workspace, "long_text", {})
    assert (workspace / whole.artifacts[0].path).read_text() == whole.output
    shutil.rmtree(workspace / ".toolcell")
    redacted = await left(supervise, workspace, "long_text", {}, after=ToolResult(output="redacted"))
    assert redacted.output == "redacted" and redacted.artifacts == [] and list(workspace.iterdir()) == []
    longer = await left(supervise, workspace, "row", {"n": 1}, after=lambda result: ToolResult(output={"n": 10**17}))
    assert longer.artifacts == []
    assert longer.unwrap() == {"n": 10**17}
    text = "x" * 200_000
    put_in = await left(supervise, workspace, "fail", {"text": "x"}, after=ToolResult(output=text))
    kept = Artifact("page", "stored", uri="file:///srv/page")
    named = await left(supervise, workspace, "row", {"n": 1}, after=ToolResult(output={"n": 2}, artifacts=[kept]))
    assert named.artifacts == [kept], "a hook may say where something is; a cell may not"
    assert put_in.artifacts[0].read().decode() == text and "the rest is artifact" in put_in.for_model()


def picture(ctx: ToolContext) -> ToolResult:
    """Show the values."""
    return ToolResult(output=dict(ctx.values), content=[TextBlock(text="x")])


class Marks(Hook):
    """Writes into the values of one agent's results, where they are."""

    async def after_call(self, call: ToolCall, result: ToolResult) -> None:
        if call.session is not None and call.session.agent_id == "a":
            result.values["secret"] = "of a"


async def test_what_a_hook_writes_into_one_sessions_result_is_in_no_others(supervise: Any, workspace: Path) -> None:
    async with supervise([picture], hooks=[Marks()]) as supervisor:
        of_a = await supervisor.open_session("main", workspace=workspace, agent_id="a")
        of_b = await supervisor.open_session("main", workspace=workspace, agent_id="b")
        assert (await of_a.call("picture")).values == {"secret": "of a"}
        for _ in range(2):
            result = await of_b.call("picture")
            assert (result.values, result.output, of_b.values) == ({}, {}, {})


# -- results in place of calls -----------------------------------------------------------------------------------------

ran: list[str] = []


@host_tool(output_schema={"type": "object", "properties": {"price": {"type": "integer"}}, "required": ["price"]})
def price(item: str) -> dict[str, int]:
    """Return a price."""
    ran.append(item)
    return {"price": 1}


@host_tool(tier=PermissionTier.ELEVATED)
def destroy(what: str) -> str:
    """Destroy."""
    ran.append(what)
    return "destroyed"


PRICED = [price, destroy, add, *base_tools()]


def cached(output: Any) -> Any:
    return lambda call: ToolResult(output=output)


async def answered(
    supervise: Any, workspace: Path, hooks: list[object], name: str, args: dict[str, Any], **options: Any
) -> ToolResult:
    ran.clear()
    async with supervise(PRICED, hooks=hooks, **options) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result: ToolResult = await session.call(name, args, call_id="the one")
        return result


async def test_a_result_of_before_call_takes_the_place_of_the_call(supervise: Any, workspace: Path) -> None:
    log, journal = list[str](), RecentJournal()
    hooks = [Witness(log, "cache", before=cached({"price": 7})), Witness(log, "other")]
    result = await answered(supervise, workspace, list(hooks), "price", {"item": "tea"}, journal=journal)
    assert result.output == {"price": 7} and result.error is None and ran == []
    assert (result.call_id, result.tool, result.arguments) == ("the one", "price", {"item": "tea"})
    assert result.usage.wall_s == 0 and result.session_id
    assert log == [
        "cache before {'item': 'tea'}",
        "other before {'item': 'tea'}",
        "cache after {'price': 7}",
        "other after {'price': 7}",
    ]
    (record,) = (one for one in journal if one.kind == "call")
    assert record.data["by"] == "hook Witness" and record.data["error"] is None


async def test_the_first_of_several_results_counts_and_other_arguments_discard_it(
    supervise: Any, workspace: Path
) -> None:
    first, second = Witness([], "1", before=cached({"price": 7})), Witness([], "2", before=cached({"price": 8}))
    assert (await answered(supervise, workspace, [first, second], "price", {"item": "tea"})).output == {"price": 7}
    renames = Witness([], "3", before=lambda call: call.with_arguments({"item": "milk"}))
    result = await answered(supervise, workspace, [first, renames], "price", {"item": "tea"})
    assert result.output == {"price": 1} and ran == ["milk"], "the result was for tea"
    result = await answered(supervise, workspace, [renames, first], "price", {"item": "tea"})
    assert result.output == {"price": 7} and result.arguments == {"item": "milk"}


async def test_a_result_counts_only_for_a_call_that_is_allowed(supervise: Any, workspace: Path) -> None:
    cache = Witness([], "cache", before=cached("from the cache"))
    denies = Witness([], "denies", before=Deny("no"))
    for hooks in ([cache, denies], [denies, cache]):
        result = await answered(supervise, workspace, list(hooks), "price", {"item": "tea"})
        assert isinstance(result.error, PermissionDenied) and result.error.message == "no"
    policy = TierPolicy(tools={"price": "deny"})
    result = await answered(supervise, workspace, [cache], "price", {"item": "tea"}, policy=policy)
    assert isinstance(result.error, PermissionDenied)
    assert (await answered(supervise, workspace, [cache], "price", {"wrong": "tea"})).error is not None
    async with supervise(PRICED, hooks=[cache]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        worker = await main.open_child("worker")
        assert isinstance((await worker.call("shell", {"command": "ls"})).error, PermissionDenied)


async def test_an_approver_is_asked_before_a_result_is_put_in(supervise: Any, workspace: Path) -> None:
    asked: list[str] = []

    class Desk:
        answer: Any = Denied("not this one")

        async def approve(self, request: Any) -> Any:
            asked.append(request.tool)
            return self.answer

    desk, cache = Desk(), Witness([], "cache", before=cached("from the cache"))
    result = await answered(supervise, workspace, [cache], "destroy", {"what": "all"}, approver=desk)
    assert isinstance(result.error, PermissionDenied) and asked == ["destroy"]
    desk.answer = Approved()
    result = await answered(supervise, workspace, [cache], "destroy", {"what": "all"}, approver=desk)
    assert result.output == "from the cache" and ran == []
    desk.answer = Approved({"what": "nothing"})
    result = await answered(supervise, workspace, [cache], "destroy", {"what": "all"}, approver=desk)
    assert result.output == "destroyed" and ran == ["nothing"], "the result was for other arguments"


@pytest.mark.parametrize(
    ("output", "what"),
    [({"price": "seven"}, "price"), ({"price": 1, "x": "y" * 2_000_000}, "limit"), ({"price": object()}, "none")],
)
async def test_a_result_that_no_tool_could_give_is_an_error(
    supervise: Any, workspace: Path, output: Any, what: str
) -> None:
    cache = Witness([], "cache", before=cached(output))
    result = await answered(supervise, workspace, [cache], "price", {"item": "tea"})
    assert result.error is not None and what in result.error.message and ran == []


async def test_a_simulated_error_is_an_error(supervise: Any, workspace: Path) -> None:
    mock = Witness([], "mock", before=lambda call: ToolResult(error=ExecutionError(message="out of stock")))
    result = await answered(supervise, workspace, [mock], "price", {"item": "tea"})
    assert result.error is not None and result.error.message == "out of stock" and not result.error.delivered


@pytest.mark.parametrize(("data", "sent"), [({"o": object()}, "is none: $.data.o"), ((1, b"x"), "out of stock")])
async def test_the_data_of_a_simulated_error_is_json(supervise: Any, workspace: Path, data: Any, sent: str) -> None:
    mock = Witness([], "mock", before=lambda call: ToolResult(error=ExecutionError(message="out of stock", data=data)))
    result = await answered(supervise, workspace, [mock], "price", {"item": "tea"})
    assert isinstance(result.error, ExecutionError) and sent in result.error.message
    assert result.error.data == (None if "none" in sent else [1, {"base64": "eA==", "size": 1}])


async def test_a_hook_that_takes_too_long_has_failed(supervise: Any, workspace: Path) -> None:
    class Slow(Hook):
        async def before_call(self, call: ToolCall) -> None:
            if call.arguments["item"] == "before":
                await anyio.sleep_forever()

        async def after_call(self, call: ToolCall, result: ToolResult) -> None:
            if call.arguments["item"] == "after":
                await anyio.sleep_forever()

    for item in ("before", "after"):
        result = await answered(supervise, workspace, [Slow()], "price", {"item": item}, hook_timeout_s=0.1)
        assert isinstance(result.error, PermissionDenied) and "the hook Slow failed" in result.error.message
        assert ran == ([] if item == "before" else ["after"])
