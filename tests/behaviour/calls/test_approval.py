"""Approval: the approver, the request, the binding of the answer, and a missing answer."""

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import until

from toolcell import (
    ApprovalQueue,
    ApprovalRequest,
    Approved,
    Cancelled,
    Denied,
    PermissionDenied,
    PermissionTier,
    Preview,
    Supervisor,
    TierPolicy,
    ToolCall,
    ToolContext,
    ToolResult,
    base_tools,
    dynamic_tool,
    tool,
)
from toolcell_tools import preview

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


@tool(tier=PermissionTier.ELEVATED)
def destroy(what: str) -> str:
    """Destroy something."""
    return f"destroyed {what}"


@tool(requires_approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def look() -> str:
    """Look."""
    return "seen"


TOOLS = [destroy, pay, look, *base_tools()]


class Person:
    """An approver or a channel that records its requests and answers `answer`."""

    name = "desk"

    def __init__(self, answer: Any = None) -> None:
        self.answer = Approved() if answer is None else answer
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        return self.answer(request) if callable(self.answer) else self.answer

    async def send(self, text: str, *, sender: str) -> None:
        raise AssertionError("nothing is sent here")


async def test_an_elevated_tool_runs_when_approved_and_the_request_says_it_all(supervise: Any, workspace: Path) -> None:
    person = Person()
    async with supervise(TOOLS, approver=person) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, agent_id="ann")
        assert (await session.call("destroy", {"what": "it"})).output == "destroyed it"
        records = supervisor.journal.of(kind="approval")
    (request,) = person.asked
    assert (request.tool, dict(request.arguments), request.tier) == ("destroy", {"what": "it"}, PermissionTier.ELEVATED)
    assert (request.agent_id, request.session_id, request.call_id) == ("ann", session.id, f"{session.id}-1")
    assert request.fingerprint == destroy.declaration.fingerprint
    assert request.created_at < request.expires_at and "elevated" in request.reason
    asked, record = records
    assert (asked.data["event"], asked.data["digest"]) == ("asked", request.digest)
    assert record.data["digest"] == request.digest and record.data["answer"] == "approved"
    assert not {"made_by", "made_at"} & (asked.data.keys() | record.data.keys()), "no earlier call has made it"


async def test_a_denial_is_an_error_with_its_words(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS, approver=Person(Denied("ask me tomorrow"))) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("destroy", {"what": "it"})).error
    assert isinstance(error, PermissionDenied) and error.message == "ask me tomorrow" and error.reason == "denied"
    assert error.tier is PermissionTier.ELEVATED


async def test_a_predicate_of_the_arguments_decides(supervise: Any, workspace: Path) -> None:
    person = Person()
    async with supervise(TOOLS, approver=person) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("pay", {"amount": 10})).output == "paid 10"
        assert person.asked == []
        assert (await session.call("pay", {"amount": 11})).output == "paid 11"
    assert [dict(request.arguments) for request in person.asked] == [{"amount": 11}]


async def test_a_model_asks_for_wider_rights_by_a_tool_that_has_them_and_says_why(
    supervise: Any, workspace: Path
) -> None:
    """A call never gets more than its tool declares. The approver reads the model's reason for this tool."""

    def run(ctx: ToolContext, command: str, justification: str = "") -> bool:
        return ctx.shell is not None

    narrow = tool(run, description="Run.", uses={"read"})
    wide = tool(run, name="run_beyond", description="Run.", uses={"exec"}, requires_approval=True)
    person = Person(lambda request: Approved() if request.arguments.get("justification") else Denied("say why"))
    async with supervise([narrow, wide], approver=person) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("run", {"command": "x", "justification": "please"})).output is False
        refused = (await session.call("run_beyond", {"command": "x"})).error
        assert isinstance(refused, PermissionDenied) and refused.message == "say why"
        assert (await session.call("run_beyond", {"command": "x", "justification": "to build"})).output is True


async def test_each_call_is_asked_for_anew(supervise: Any, workspace: Path) -> None:
    person = Person()
    async with supervise(TOOLS, approver=person) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(2):
            await session.call("destroy", {"what": "it"})
    first, second = person.asked
    assert first.id != second.id and first.digest != second.digest


async def test_approved_arguments_take_the_place_of_the_models_and_are_validated(
    supervise: Any, workspace: Path
) -> None:
    person = Person(Approved({"what": "less"}))
    async with supervise(TOOLS, approver=person) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("destroy", {"what": "it"})).output == "destroyed less"
        person.answer = Approved({"what": 3})
        error = (await session.call("destroy", {"what": "it"})).error
    assert error is not None and error.kind == "validation" and "approver" in error.message and not error.retryable


async def test_what_runs_is_what_was_asked_about_whatever_becomes_of_the_request_and_the_arguments(
    supervise: Any, workspace: Path
) -> None:
    arguments = {"what": "it"}

    def tamper(request: ApprovalRequest) -> Approved:
        arguments["what"] = "everything"
        request.arguments["what"] = "everything"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
        return Approved()

    async with supervise(TOOLS, approver=Person(tamper)) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("destroy", arguments)).output == "destroyed it"


@pytest.mark.parametrize("answer", [42, lambda _: 1 / 0], ids=["no answer", "raises"])
async def test_an_approver_that_fails_approves_nothing(answer: Any, supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS, approver=Person(answer)) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("destroy", {"what": "it"})).error
    assert isinstance(error, PermissionDenied) and error.reason == "the approver failed"


async def test_nobody_to_ask_is_a_denial(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("destroy", {"what": "it"})).error
    assert isinstance(error, PermissionDenied) and "nobody can be asked" in error.message


async def test_the_nearest_session_that_owns_a_channel_is_asked(supervise: Any, workspace: Path) -> None:
    top, middle = Person(), Person()
    async with supervise(TOOLS, approval_timeout_s=5) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, channel=top)
        branch = await main.open_child("branch")
        deeper = await branch.open_child("branch")
        own = await main.open_child("branch", channel=middle)
        for session in (main, branch, deeper):
            assert (await session.call("destroy", {"what": "it"})).output == "destroyed it"
        assert len(top.asked) == 3 and {request.session_id for request in top.asked} == {main.id, branch.id, deeper.id}
        assert (await own.call("destroy", {"what": "it"})).output == "destroyed it"
        assert len(top.asked) == 3 and len(middle.asked) == 1


async def test_no_answer_in_time_is_a_denial_and_the_call_has_its_own_time(supervise: Any, workspace: Path) -> None:
    async def slowly(request: ApprovalRequest) -> Approved:
        await anyio.sleep(0.5)
        return Approved()

    class Slow:
        approve = staticmethod(slowly)

    async with supervise(TOOLS, approver=Slow(), approval_timeout_s=0.1) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("destroy", {"what": "it"})).error
        assert isinstance(error, PermissionDenied) and error.reason == "expired"
        assert error.message.endswith("Nobody approved the call within 0.1 s.")
    async with supervise(TOOLS, approver=Slow()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("destroy", {"what": "it"}, timeout=0.45)
        assert result.output == "destroyed it"


async def test_other_calls_go_on_while_one_waits_and_no_cell_is_held(supervise: Any, workspace: Path) -> None:
    queue = ApprovalQueue()
    results: list[ToolResult] = []
    async with supervise(TOOLS, approver=queue, max_cells=1) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                results.append(await session.call("destroy", {"what": "it"}))

            tasks.start_soon(wait)
            await until(lambda: len(queue) == 1)
            assert (await session.call("look")).output == "seen"
            (pending,) = queue
            queue.decide(pending.id, Approved())
        assert results[0].output == "destroyed it"
        with pytest.raises(KeyError):
            queue.decide(pending.id, Approved())
        assert len(queue) == 0


async def test_what_was_approved_does_not_run_after_its_session_was_closed(supervise: Any, workspace: Path) -> None:
    queue = ApprovalQueue()
    results: list[ToolResult] = []
    async with supervise(TOOLS, approver=queue, policy=TierPolicy(workspace="ask")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                results.append(await session.call("write", {"path": "a.txt", "content": "x"}))

            tasks.start_soon(wait)
            await until(lambda: len(queue) == 1)
            await session.close()
            assert len(queue) == 0
        _asked, record = supervisor.journal.of(kind="approval")
    assert isinstance(results[0].error, Cancelled) and not (workspace / "a.txt").exists()
    assert "withdrawn" in record.data["answer"]


async def test_the_approver_of_one_call_is_asked_only_if_the_session_has_none(supervise: Any, workspace: Path) -> None:
    own, of_all = Person(), Person(Denied("not here"))
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("destroy", {"what": "it"}, approver=own)).output == "destroyed it"
        error = (await session.call("destroy", {"what": "it"})).error
        assert isinstance(error, PermissionDenied) and "nobody can be asked" in error.message
    async with supervise(TOOLS, approver=of_all) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("destroy", {"what": "it"}, approver=own)).error
        assert isinstance(error, PermissionDenied) and error.message == "not here"
    assert (len(own.asked), len(of_all.asked)) == (1, 1)


async def test_a_call_whose_approver_closes_the_session_is_cancelled(supervise: Any, workspace: Path) -> None:
    class Closer(Person):
        async def approve(self, request: ApprovalRequest) -> Any:
            await session.close()
            return Approved()

    async with supervise(TOOLS, approver=Closer()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert isinstance((await session.call("destroy", {"what": "it"})).error, Cancelled)


class Board:
    """A channel that can only send."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[tuple[str, str]] = []
        self.error = error

    async def send(self, text: str, *, sender: str) -> None:
        self.sent.append((text, sender))
        if self.error is not None:
            raise self.error


async def test_a_channel_that_can_only_send_shows_the_question_and_one_above_it_answers(
    supervise: Any, workspace: Path
) -> None:
    desk, board, broken = Person(), Board(), Board(OSError("no paper"))
    async with supervise(TOOLS, approval_timeout_s=5) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, channel=desk)
        branch = await main.open_child("branch", channel=board)
        deeper = await branch.open_child("branch", channel=broken)
        assert (await branch.call("destroy", {"what": "it\u202e"})).output == "destroyed it\u202e"
        assert (await deeper.call("destroy", {"what": "more"})).output == "destroyed more"
        await until(lambda: len(board.sent) == 2 and len(broken.sent) == 1)
    assert [request.session_id for request in desk.asked] == [branch.id, deeper.id]
    (text, sender), (_again, other) = board.sent
    assert text.isprintable() and "destroy" in text and "not given here" in text
    assert (sender, other) == (f"agent/{branch.id}", f"agent/{deeper.id}")


async def test_a_question_that_nobody_can_answer_is_shown_with_its_denial(supervise: Any, workspace: Path) -> None:
    board = Board()
    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, channel=board)
        error = (await main.call("destroy", {"what": "it"})).error
        await until(lambda: len(board.sent) == 1)
    assert isinstance(error, PermissionDenied) and "nobody can be asked" in error.message
    assert "destroy" in board.sent[0][0] and "denied" in board.sent[0][0]


async def test_an_approved_call_goes_to_the_directory_that_took_the_workspaces_place_meanwhile(
    supervise: Any, workspace: Path
) -> None:
    def approve(request: ApprovalRequest) -> Approved:
        if request.arguments["path"] == "b.txt":
            workspace.rename(workspace.with_name("old"))
            workspace.mkdir()
        return Approved()

    async with supervise(TOOLS, approver=Person(approve), policy=TierPolicy(workspace="ask")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("write", {"path": "a.txt", "content": "a"})).error is None, "so that a cell waits"
        assert (await session.call("write", {"path": "b.txt", "content": "b"})).error is None
    assert (workspace / "b.txt").read_text() == "b"
    assert [file.name for file in workspace.with_name("old").iterdir()] == ["a.txt"]


async def test_the_waiting_call_can_be_cancelled(supervise: Any, workspace: Path) -> None:
    queue = ApprovalQueue()
    async with supervise(TOOLS, approver=queue) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with anyio.move_on_after(0.2) as scope:
            await session.call("destroy", {"what": "it"})
        assert scope.cancelled_caught and len(queue) == 0


async def test_the_request_shows_a_preview_without_side_effects(supervise: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")
    person = Person(Denied())
    async with supervise(TOOLS, approver=person, policy=TierPolicy(workspace="ask", system="ask")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("edit", {"path": "a.txt", "old_text": "two", "new_text": "three"})
        await session.call("write", {"path": "b/c.txt", "content": "new\n"})
        await session.call("shell", {"command": "rm a.txt"})
        await session.call("edit", {"path": "missing.txt", "old_text": "two", "new_text": "three"})
        await session.call("destroy", {"what": "it"})
    edit, write, shell, missing, destroyed = (request.preview for request in person.asked)
    assert "a.txt" in edit.summary and edit.diff is not None and "-two" in edit.diff and "+three" in edit.diff
    assert write.diff is not None and "+new" in write.diff
    assert "rm a.txt" in shell.summary + shell.details
    assert "missing.txt" in missing.summary
    assert destroyed.summary.startswith("destroy(") and "it" in destroyed.details
    assert (workspace / "a.txt").read_text() == "one\ntwo\n" and sorted(workspace.iterdir()) == [workspace / "a.txt"]


async def test_a_preview_cannot_hide_anything_nor_pass_as_the_supervisors_word(supervise: Any, workspace: Path) -> None:
    def liar(path: str) -> Preview:
        return Preview("list\x1b[2K\nfiles" + "A" * 300_000, "safe\n\x1b[1A\u202e", "+\x9b1A")

    def lying(path: str) -> str:
        return path

    anything = dynamic_tool("anything", handler=lambda arguments: 1, requires_approval=True)
    person = Person(Denied())
    tools = [tool(lying, requires_approval=True, preview=liar), anything]
    async with supervise(tools, approver=person) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("lying", {"path": "x"})
        await session.call("anything", {'path: "safe"\nwhat': "ls\u202e", "pad": "x" * 50_000, "z": "rm -rf /"})
    lie, named = person.asked
    assert (lie.preview_by, named.preview_by) == ("tool", "supervisor") and lie.arguments == {"path": "x"}
    assert lie.preview.summary.startswith("list\\x1b[2K\\nfilesA") and len(lie.preview.summary) < 400
    assert lie.preview.details == "safe\n\\x1b[1A\\u202e" and lie.preview.diff == "+\\x9b1A"
    first, pad, last = named.preview.details.splitlines()
    assert first == r'"path: \"safe\"\nwhat": "ls\u202e"' and "more characters" in pad and last == 'z: "rm -rf /"'


@pytest.mark.parametrize("has_state", [False, True])
async def test_no_long_text_for_people_is_written_on_the_event_loop(
    supervise: Any, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_state: bool
) -> None:
    threads = set[int]()
    text_of = preview.written

    def noted(value: object) -> str:
        threads.add(threading.get_ident())
        return text_of(value)

    monkeypatch.setattr(preview, "written", noted)
    person = Person(lambda request: Approved() if request.fitted(21).text and request.text and threads else Denied())
    async with supervise(TOOLS, approver=person, **({"state": tmp_path / "state"} if has_state else {})) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("destroy", {"what": "\\" * 100_000})).error is None
    assert threads and threading.get_ident() not in threads


async def test_plain_approvers_that_wait_for_people_hold_up_no_plain_hook(tmp_path: Path) -> None:
    answered, most = threading.Event(), 20

    class Slow:
        def approve(self, request: ApprovalRequest) -> Approved | Denied:
            answered.wait(30)
            return Approved()

    class Watching:
        def before_call(self, call: ToolCall) -> None: ...

    @tool(requires_approval=True)
    def risky(number: int) -> int:
        return number

    @tool
    def safe() -> str:
        return "ran"

    async with Supervisor([risky, safe], hooks=[Watching()], approver=Slow(), hook_timeout_s=5) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        results: list[ToolResult] = []

        async def ask(number: int) -> None:
            results.append(await session.call("risky", {"number": number}))

        try:
            async with anyio.create_task_group() as tasks:
                for number in range(most):
                    tasks.start_soon(ask, number)
                await until(lambda: supervisor.approvals.pending_count() == most)
                assert (await session.call("safe")).unwrap() == "ran"
                answered.set()
        finally:
            answered.set()
    assert sorted(result.unwrap() for result in results) == list(range(most))
