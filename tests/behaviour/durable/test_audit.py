"""What the journal says of each call to an operator: who asked, who allowed it, what it touched, and no secrets."""

import os
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.journal.records import HOSTILE
from tests.journal.test_redaction import spellings

from toolcell import (
    ApprovalRequest,
    Approved,
    Capability,
    ExecutionError,
    HostContext,
    PermissionTier,
    PolicyRule,
    Profile,
    RecentJournal,
    Record,
    RequestDenied,
    Supervisor,
    TierPolicy,
    ToolCall,
    ToolContext,
    UsageError,
    host_tool,
    module_toolset,
    tool,
)
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.narrative import story_of
from toolcell.store.journal.reading import JournalReader
from toolcell.testing.backends import ListChannel, ListMemory

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
Supervise = Callable[..., Supervisor]


@tool(needs={Capability.WRITE, Capability.MEMORY_WRITE})
def save(ctx: ToolContext, path: str, text: str, password: str = "") -> str:
    """Save a text to a file and to the memory."""
    ctx.require.writer.write_text(path, text)
    ctx.require.memory_writer.store(text)
    print(password)
    if text == "fail":
        raise ValueError(f"{password} is wrong")
    return f"saved with {password}"


@tool(tier=PermissionTier.ELEVATED)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def chatter(ctx: ToolContext, count: int) -> int:
    """Log so many lines."""
    for number in range(count):
        ctx.log("info", f"line {number} " + "x" * 500)
    return count


def records(state: Path) -> list[Record]:
    directory = StateDirectory(state)
    return [each.record for each in JournalReader(directory.log, directory.index).entries()]


def story(state: Path, call: str) -> str:
    return "\n".join(story_of(record for record in records(state) if record.call_id == call))


class FailingMemory(ListMemory):
    async def store(self, record: Any, *, namespace: str) -> str:
        raise RuntimeError("password=hunter2 is not accepted")


class Desk:
    async def approve(self, request: ApprovalRequest) -> Approved:
        return Approved()


async def test_the_story_of_a_call_has_who_allowed_it_where_it_ran_and_what_it_made(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    policy = TierPolicy(rules=[PolicyRule("allow", tool="save", arguments={"path": "*.txt"}, name="texts")])
    async with supervise([save, pay], state=tmp_path / "state", policy=policy, approver=Desk()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s", agent_id="ann")
        await session.call("save", {"path": "a.txt", "text": "hello"}, call_id="saved")
        await session.call("pay", {"amount": 5}, call_id="paid")
    told = story(tmp_path / "state", "saved")
    for part in (
        "The agent ann asked for save 1.0.0 (tier workspace) in the main session s, and the call was accepted:",
        "path: 'a.txt'",
        "allowed by policy.rules[0] 'texts'; capabilities: memory.write, write; in a sandbox on the workspace",
        "with no network",
        "It used memory.store(text='hello'",
        "created: a.txt",
        "It shows: 'saved with '",
    ):
        assert part in told
    assert re.search(r"It ran in cell \d+, which was new\. It took [\d.]+ m?s after", told)
    assert re.search(r"of CPU time, .*[\d.]+ MiB resident in its own process\. It shows", told)
    paid = story(tmp_path / "state", "paid")
    assert "Approval was asked for pay" in paid and "was approved by Desk" in paid
    assert "allowed by an approval, because the policy asks for approval of elevated calls of 'pay'" in paid


async def test_the_story_of_a_call_that_still_runs_says_that_no_end_is_recorded(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    async with supervise([pay], state=tmp_path / "state", approver=Desk()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        await session.call("pay", {"amount": 5}, call_id="paid")
    of_call = [record for record in records(tmp_path / "state") if record.call_id == "paid"]
    last = {each.kind: list(story_of(of_call[: number + 1]))[-1] for number, each in enumerate(of_call)}
    assert last["sent"].startswith("No end is recorded. If `toolcell status` shows a supervisor")
    assert "It ended with a result" in last["call"]
    asked = next(number for number, each in enumerate(of_call) if each.data.get("event") == "asked")
    told = list(story_of(of_call[: asked + 1]))
    assert told[-1] == "No end is recorded. The call waits for an answer, or its supervisor ended before one came."
    assert any("the digest of the request: sha256:" in line for line in told)


async def test_the_story_of_a_refused_call_has_who_asked_and_for_what(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    policy = TierPolicy(rules=[PolicyRule("deny", tool="save", arguments={"path": "/etc/*"}, name="no etc")])
    async with supervise([save, pay], state=tmp_path / "state", policy=policy) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s", agent_id="ann")
        arguments = {"path": "/etc/passwd", "text": "x", "password": "hunter2"}
        await session.call("save", arguments, call_id="denied")
        await session.call("save", {"path": 1}, call_id="invalid")
        await session.call("none", {"a": "b"}, call_id="unknown")
    for call, parts in {
        "denied": ("ann asked for save (tier workspace, main session s)", "path: '/etc/passwd'", "rules[0] 'no etc'"),
        "invalid": ("ann asked for save", "path: 1", "must be a string"),
        "unknown": ("ann asked for none (main session s)", "a: 'b'", "unknown_tool"),
    }.items():
        told = story(tmp_path / "state", call)
        assert all(part in told for part in (*parts, "the call was refused before it ran")), told
        assert "hunter2" not in told
    for record in records(tmp_path / "state"):
        if record.kind in ("intent", "call", "denied"):
            assert {"tool", "version", "tier", "agent", "session_kind"} <= record.data.keys() | {"version"}
            assert record.data["digest"].startswith("sha256:")


async def test_what_a_tool_prints_or_raises_of_its_secrets_is_not_kept(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    async with supervise([save], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        for text in ("works", "fail"):
            result = await session.call("save", {"path": "a", "text": text, "password": "hunter2"}, call_id=text)
            assert "hunter2" in (result.display if text == "works" else str(result.error))
    assert "hunter2" not in (tmp_path / "state" / "journal.log").read_bytes().decode("latin-1")
    assert "saved with [redacted]" in story(tmp_path / "state", "works")
    assert "[redacted] is wrong" in story(tmp_path / "state", "fail")


@tool(needs={Capability.CHANNEL, Capability.MEMORY_WRITE}, uses={Capability.HTTP})
def gossip(ctx: ToolContext, password: str, account: dict[str, str], how: str) -> None:
    """Tell the password, the account's key and the key of the environment in every way but a result."""
    for secret in (password, account["api_key"], os.environ["SERVICE_TOKEN"]):
        for said in (secret, spellings(secret)[how], "x" * 1_990 + secret):
            ctx.log(f"logging in with {said}", sent=said, more=[{"header": f"X-Key: {said}"}])
            ctx.progress(f"logging in with {said}")
        ctx.require.channel.send(f"logged in with {spellings(secret)[how]}")
        ctx.require.memory_writer.store(f"{secret} worked")
        try:
            assert ctx.http is not None
            ctx.http.request("GET", f"https://api.example.org/{spellings(secret)['percent, all special']}")
        except RequestDenied:
            pass
        print(spellings(secret)[how])
    raise RuntimeError(f"{password} and {account['api_key']} and {os.environ['SERVICE_TOKEN']} do not work")


@host_tool
def gossip_here(ctx: HostContext, password: str) -> None:
    """Log the password."""
    ctx.log(f"logging in with {password}", sent=password)


@pytest.mark.parametrize("how", ["plain", "JSON for HTML", "percent, lower case", "HTML, hexadecimal", "base64"])
async def test_what_a_tool_tells_of_its_secrets_while_it_runs_is_not_kept(
    supervise: Supervise, workspace: Path, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secrets = {"password": "hunter2+of/ann", "api_key": "k-81c4&of=ann", "SERVICE_TOKEN": "t-54f2/of+main"}
    profile = Profile.for_kind("main").replace(env={"SERVICE_TOKEN": secrets["SERVICE_TOKEN"]})
    arguments: dict[str, Any] = {"password": secrets["password"], "account": {"api_key": secrets["api_key"]}}
    beside = RecentJournal()
    async with supervise([gossip, gossip_here], state=tmp_path / "state", journal=beside) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, channel=ListChannel(), profile=profile)
        said: list[str] = []
        gossiped = await session.call(
            "gossip", {**arguments, "how": how}, on_log=lambda _level, message, _fields: said.append(message)
        )
        assert isinstance(gossiped.error, ExecutionError) and "do not work" in gossiped.error.message
        assert f"logging in with {secrets['password']}" in said  # a program reads what its tools log
        assert (await session.call("gossip_here", {"password": secrets["password"]})).error is None
    kept = records(tmp_path / "state")
    counts = Counter(record.kind for record in kept)
    assert (counts["log"], counts["operation"], counts["http"]) == (10, 9, 3)
    for place in (
        repr(kept),
        repr(list(beside)),
        caplog.text,
        (tmp_path / "state" / "journal.log").read_text("latin-1"),
    ):
        for secret in secrets.values():
            for spelled in spellings(secret).values():
                assert spelled not in place


async def test_an_operation_that_fails_is_recorded_and_one_with_an_effect_before_it_begins(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    async with supervise([save], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s", memory=FailingMemory())
        await session.call("save", {"path": "a", "text": "t"}, call_id="c")
    found = [record.data for record in records(tmp_path / "state") if record.kind == "operation"]
    assert [(each["operation"], each["effect"], each.get("error")) for each in found] == [
        ("memory.store", True, None),
        ("memory.store", True, "RuntimeError"),
    ]
    assert "memory.store failed: RuntimeError" in story(tmp_path / "state", "c")


async def test_a_tool_cannot_fill_the_disk_with_its_log(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    async with supervise([chatter], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace, session_id="s")
        assert (await session.call("chatter", {"count": 3_000})).output == 3_000
    found = records(tmp_path / "state")
    assert sum(record.kind == "log" for record in found) == 1_000
    assert any("more than 1,000 records of kind 'log'" in str(record.data.get("what")) for record in found)
    assert (tmp_path / "state" / "journal.log").stat().st_size < 4_000_000


async def test_a_journal_with_a_bound_keeps_the_last_records(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with pytest.raises(UsageError, match=r"journal_bytes is too small: 1,000\. Pass at least 1,048,576"):
        supervise([chatter], state=state, journal_bytes=1000)
    async with supervise([chatter], state=state, journal_bytes=1_048_576) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        for number in range(3):
            await session.call("chatter", {"count": 900}, call_id=f"call-{number}")
            await anyio.sleep(1.3)  # the log is looked at once a second
    directory = StateDirectory(state)
    reader = JournalReader(directory.log, directory.index)
    assert reader.verify().number > 2_700 and len(list(state.glob("journal.log.*"))) >= 1
    assert "It ended with a result" in story(state, "call-2")


async def test_calls_without_an_id_have_another_one_after_a_restart(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    ids: list[str] = []
    for _restart in range(3):
        async with supervise([save], state=tmp_path / "state") as supervisor:
            for _again in range(2):
                session = await supervisor.open_session("main", workspace=workspace, session_id="s")
                ids += [(await session.call("save", {"path": 1})).call_id for _ in range(2)]
                await session.close()
    assert len(set(ids)) == 12


async def test_the_commands_print_no_control_characters(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with supervise([pay], state=state, approval_timeout_s=0.3) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id=f"s{HOSTILE}", agent_id=HOSTILE)
        await session.call(f"x{HOSTILE}", {HOSTILE: HOSTILE}, call_id="c")
        await session.call("pay", {"amount": 1}, call_id=f"id{HOSTILE}")
        await anyio.sleep(1.2)  # the status has been written
        outputs = [
            await anyio.run_process([sys.executable, "-m", "toolcell.cli", *words, "--state", str(state)], check=False)
            for words in (
                ["audit", "list"],
                ["audit", "show", "c"],
                ["audit", "show", f"id{HOSTILE}"],
                ["audit", "show", HOSTILE],
                ["audit", "export"],
                ["status"],
                ["approvals", "list", "--all"],
            )
        ]
    with closing(sqlite3.connect(StateDirectory(state).database, isolation_level=None)) as database:
        database.execute("UPDATE requests SET id = 'a' || ?", (HOSTILE,))
    for words in (["approvals", "list", "--all"], ["approvals", "show", "a"]):
        outputs.append(
            await anyio.run_process([sys.executable, "-m", "toolcell.cli", *words, "--state", str(state)], check=False)
        )
    for done in outputs:
        text = (done.stdout + done.stderr).decode()
        assert text and "Traceback" not in text, text
        assert all(line.isprintable() for line in text.split("\n")), ascii(text)


async def test_calls_of_one_id_have_a_story_each(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with supervise([chatter, pay], state=state) as supervisor:
        first, second = [
            await supervisor.open_session("worker", workspace=workspace, session_id=each) for each in ("one", "two")
        ]
        for session, count in ((first, 1), (second, 2), (first, 0)):
            await session.call("chatter", {"count": count}, call_id="same")
        await second.call("nothing", call_id="same")
    stories = story(state, "same").split("Call ")[1:]
    heads = [each.splitlines()[0] for each in stories]
    assert heads == [
        f"{number} of 4 with this id, in the session {session}:"
        for number, session in enumerate(("one", "two", "one", "two"), 1)
    ]
    assert [each.count("The tool logged") for each in stories] == [1, 2, 0, 0]
    assert [each.count("It ended with a result") for each in stories] == [1, 1, 1, 0]
    assert "unknown_tool" in stories[3] and "with this id" not in story(state, "other")


async def test_a_place_that_a_cell_may_see_is_refused(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "place" / "state"
    state.parent.mkdir()
    with pytest.raises(UsageError, match="the quarantine"):
        async with supervise([pay], state=state, quarantine=tmp_path / "place"):
            pytest.fail("it started")
    with pytest.raises(UsageError, match="the Python installation"):
        async with supervise([pay], state=Path(sys.prefix) / "state"):
            pytest.fail("it started")
    assert not (Path(sys.prefix) / "state").exists()
    (tmp_path / "place" / "somebodys.py").write_text("def hello() -> str:\n    '''Say hello.'''\n    return 'hello'\n")
    toolset = module_toolset("somebodys", path=tmp_path / "place", allow={"read"})
    async with supervise([pay], toolsets=[toolset], state=state) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        (workspace / "link").symlink_to(state)
        for place in (state, state.parent, workspace / "link", tmp_path):
            with pytest.raises(UsageError, match=r"overlap|workspace was replaced|passes the symbolic link"):
                await supervisor.open_session("main", workspace=place)
            with pytest.raises(UsageError, match=r"overlap|leads out"):
                await main.open_child("branch", workspace=place)
            with pytest.raises(UsageError, match=r"overlap|passes the symbolic link"):
                profile = Profile.for_kind("branch").replace(readable=(str(place),))
                await main.open_child("branch", profile=profile)
        with pytest.raises(Exception, match="overlap"):
            await main.tools()


async def test_the_policy_in_force_explains_a_call(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    from toolcell import load_config

    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "toolcell.toml").write_text('[policy.tools]\npay = "deny"\n')
    asked: list[ToolCall] = []

    class Ask:
        async def before_call(self, call: ToolCall) -> None:
            asked.append(call)

    policy = TierPolicy(rules=[PolicyRule("allow", tool="pay", name="small", arguments={"amount": "?"})])
    for config, rule in (
        (None, "policy.rules[0] 'small'"),
        (load_config(tmp_path / "settings"), "project policy.tools.pay"),
    ):
        async with supervise([pay], policy=policy, hooks=[Ask()], config=config) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            await session.call("pay", {"amount": 5})
            assert supervisor.policy.explain(asked[-1]).rule == rule  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
            assert (await session.explain("pay", {"amount": 5})).rule == rule
    with pytest.raises(UsageError, match=r"Pass them, or ask session\.explain"):
        policy.explain(ToolCall("c", "pay", {"amount": 5}))
