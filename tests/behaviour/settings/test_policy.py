"""A policy from settings: its rule is named to the model, the approver and the journal."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import PATIENCE_S

from toolcell import (
    ApprovalRequest,
    Approved,
    Explanation,
    Hook,
    PermissionDenied,
    PolicyRule,
    RecentJournal,
    Supervisor,
    TierPolicy,
    ToolCall,
    ToolResult,
    UsageError,
    base_tools,
    dynamic_tool,
    load_config,
    tool,
)

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


class Editor:
    """Approves with other arguments."""

    def __init__(self, amount: int) -> None:
        self.amount = amount
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> Approved:
        self.asked.append(request)
        return Approved({"amount": self.amount})


async def test_a_project_denies_what_the_program_allows_and_the_rule_is_named(
    supervise: Any, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "toolcell.toml").write_text(
        '[[policy.rules]]\ndecision = "deny"\ntool = "shell"\n'
        'arguments = { command = "*curl*" }\nname = "no downloads"\n'
    )
    config = load_config(tmp_path)
    async with supervise(base_tools(), config=config, policy=TierPolicy(system="allow")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert not (await session.call("shell", {"command": "true"})).is_error
        error = (await session.call("shell", {"command": "curl example.org"})).error
        assert isinstance(error, PermissionDenied)
        assert error.reason == "the policy denies it (project policy.rules[0] 'no downloads')"
        assert str(tmp_path) not in error.model_dump_json()
        told = await session.explain("shell", {"command": "curl example.org"})
        assert (told.decision, told.rule) == ("deny", "project policy.rules[0] 'no downloads'")
        assert told.file == str(tmp_path / "toolcell.toml")
        assert ("policy.system", "allow") in told.others
        assert (await session.explain("shell", {"command": "true"})).file == ""
        (record,) = supervisor.journal.of(kind="denied")
        assert "no downloads" in record.data["message"]


async def test_arguments_that_an_approver_puts_in_are_decided_on_too(supervise: Any, workspace: Path) -> None:
    policy = TierPolicy(rules=[PolicyRule("deny", tool="pay", arguments={"amount": "???*"}, name="below 100")])
    editor = Editor(500)
    async with supervise([pay], approver=editor, policy=policy) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("pay", {"amount": 5})).error
        assert isinstance(error, PermissionDenied) and "below 100" in error.reason
        editor.amount = 50
        assert (await session.call("pay", {"amount": 5})).output == "paid 50"


async def test_arguments_that_an_answer_in_the_store_puts_in_are_decided_on_too(
    supervise: Any, workspace: Path, tmp_path: Path
) -> None:
    policy = TierPolicy(rules=[PolicyRule("deny", tool="pay", arguments={"amount": "???*"}, name="below 100")])
    journal = RecentJournal()
    async with supervise([pay], state=tmp_path / "state", journal=journal, policy=policy) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        results: list[ToolResult] = []

        async def call() -> None:
            results.append(await session.call("pay", {"amount": 5}))

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                while not (pending := supervisor.approvals.pending()):
                    await anyio.sleep(0.01)
                supervisor.approvals.approve(pending[0].id, arguments={"amount": 500})
        error = results[0].error
        assert isinstance(error, PermissionDenied) and "policy.rules[0] 'below 100'" in error.reason
        (record,) = journal.of(kind="denied")
        assert "policy.rules[0] 'below 100'" in record.data["message"]


async def test_the_arguments_that_a_hook_puts_in_are_decided_on(supervise: Any, workspace: Path) -> None:
    class Raise(Hook):
        async def before_call(self, call: ToolCall) -> ToolCall:
            return call.with_arguments({"amount": 500})

    policy = TierPolicy(rules=[PolicyRule("deny", tool="pay", arguments={"amount": "500"})])
    async with supervise([pay], approver=Editor(1), hooks=[Raise()], policy=policy) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("pay", {"amount": 5})).error
        assert isinstance(error, PermissionDenied) and "policy.rules[0]" in error.reason


async def test_the_approver_reads_which_rule_asks(supervise: Any, workspace: Path) -> None:
    editor = Editor(1)
    async with supervise([pay], approver=editor, policy=TierPolicy(tools={"pay": "ask"})) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("pay", {"amount": 5})
    assert editor.asked[0].reason.endswith("(policy.tools.pay)")


async def test_a_session_explains_a_call_without_making_it(supervise: Any, workspace: Path) -> None:
    policy = TierPolicy(workspace="ask", rules=[PolicyRule("allow", tool="write", arguments={"path": "tmp/*"})])
    async with supervise([*base_tools(), pay], policy=policy) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert await session.explain("write", {"path": "tmp/a", "content": ""}) == Explanation(
            "allow", "policy.rules[0]"
        )
        assert await session.explain("write", {"path": "a", "content": ""}) == Explanation("ask", "policy.workspace")
        assert (await session.explain("pay", {"amount": 5})).rule == "the tool 'pay' asks for approval"
        worker = await supervisor.open_session("worker", workspace=workspace)
        lacking = await worker.explain("write", {"path": "a", "content": ""})
        assert lacking.decision == "deny" and "write" in lacking.rule
        for name, arguments in (("none", {}), ("pay", {"amount": "x"})):
            with pytest.raises(UsageError):
                await session.explain(name, arguments)
    assert not list(workspace.iterdir())


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (PolicyRule("deny", tool="shell", arguments={"comand": "*"}), "the tool 'shell' does not have. Did you mean"),
        (PolicyRule("deny", tool="shell", arguments={"zzz": "*"}), "Known: command, cwd, timeout_s."),
        (PolicyRule("deny", arguments={"pth": "*"}), "no tool has. Did you mean 'path'?"),
        (PolicyRule("deny", tool="shell", arguments={"path": "*"}), "the tool 'shell' does not have"),
    ],
)
def test_a_pattern_for_an_argument_that_no_tool_has_is_refused(rule: PolicyRule, what: str) -> None:
    for policy in (TierPolicy(rules=[rule]), TierPolicy(agents={"ann": TierPolicy(rules=[rule])})):
        with pytest.raises(UsageError) as refused:
            Supervisor(base_tools(), policy=policy)
        assert what in str(refused.value)


def test_a_pattern_may_name_members_and_the_arguments_of_tools_with_open_schemas() -> None:
    def handler(given: dict[str, Any]) -> str:
        return str(given)

    anything = dynamic_tool("anything", description="Take it.", parameters={"type": "object"}, handler=handler)
    rules = [
        PolicyRule("deny", tool="memory_store", arguments={"tags.a": "*"}),
        PolicyRule("deny", tool="anything", arguments={"whatever": "*"}),
        PolicyRule("deny", arguments={"whatever": "*"}),
    ]
    Supervisor([*base_tools(), anything], policy=TierPolicy(rules=rules))


async def test_a_users_file_may_name_tools_of_other_programs_which_is_logged(
    supervise: Any, workspace: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[policy.tools]\nshell = "deny"\n'
        '[[policy.rules]]\ndecision = "deny"\ntool = "pay"\narguments = { amont = "9*" }\n'
    )
    config = load_config(file=file)
    async with supervise([pay], config=config, approver=Editor(1)) as supervisor:
        assert "there is no tool 'shell'" in caplog.text and "Did you mean 'amount'?" in caplog.text
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("pay", {"amount": 5})).output == "paid 1"
        assert [record.data["policy"] for record in supervisor.journal.of(kind="incident")] == ["shell"]
    with pytest.raises(UsageError):
        Supervisor([pay], config=config, policy=TierPolicy(tools={"shell": "deny"}))
