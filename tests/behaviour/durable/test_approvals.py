"""Approvals of a durable supervisor: answered by another process, after a restart, and never twice."""

import re
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import programs
from tests.helpers import PATIENCE_S, until

from toolcell import (
    ApprovalQueue,
    ApprovalRequest,
    Approvals,
    Approved,
    PermissionDenied,
    PermissionTier,
    Record,
    Supervisor,
    ToolContext,
    ToolResult,
    UsageError,
    tool,
)
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.durable import interrupted
from toolcell.store.journal.log import JournalLog
from toolcell.store.journal.narrative import time_of
from toolcell.store.journal.reading import JournalReader

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]
Supervise = Callable[..., Supervisor]


@tool(tier=PermissionTier.ELEVATED)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(tier=PermissionTier.ELEVATED, preview=lambda text: "a harmless note")
def note(text: str) -> str:
    """Note."""
    return f"noted {len(text)}"


def events(state: Path) -> list[tuple[str, str]]:
    directory = StateDirectory(state)
    records = [each.record for each in JournalReader(directory.log, directory.index).entries()]
    return [(record.data["event"], record.data["answer"]) for record in records if record.kind == "approval"]


async def command(state: Path, *words: str, of: str = "approvals") -> str:
    line = [sys.executable, "-I", "-m", "toolcell.cli", of, *words, "--state", str(state)]
    done = await anyio.to_thread.run_sync(partial(programs.run, line))
    assert done.returncode == 0, done.stderr
    return done.stdout


async def unanswered(supervise: Supervise, workspace: Path, state: Path) -> str:
    """Let a supervisor end while a call waits for approval. Returns the request's id."""
    async with supervise([pay], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "pay", {"amount": 5})
            await until(lambda: len(supervisor.approvals.pending()) == 1)
            (entry,) = supervisor.approvals.pending()
            tasks.cancel_scope.cancel()
    return entry.id


async def test_a_person_answers_from_another_process_while_the_call_waits(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state, results = tmp_path / "state", list[ToolResult]()
    async with supervise([pay], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)

        async def call(amount: int) -> None:
            results.append(await session.call("pay", {"amount": amount}, call_id=f"pay-{amount}"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, 5)
            await until(lambda: len(supervisor.approvals.pending()) == 1)
            line = await command(state, "list")
            assert "pay(" in line and "pending" in line
            assert "amount: 5" in await command(state, "show", line.split()[0])
            await command(state, "approve", line.split()[0], "--arguments", '{"amount": 4}')
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, 6)
            await until(lambda: len(supervisor.approvals.pending()) == 1)
            await command(state, "deny", (await command(state, "list")).split()[0], "-m", "ask tomorrow")
    assert results[0].output == "paid 4"
    assert isinstance(results[1].error, PermissionDenied) and results[1].error.message == "ask tomorrow"
    told = await command(state, "show", "pay-5", of="audit")
    assert "Approval was asked for pay" in told and "    amount: 5" in told and "    amount: 4" in told
    assert "approved with other arguments by" in told and "toolcell approvals" in told


async def test_the_command_line_lists_the_call_itself_and_shows_all_of_it(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with supervise([note], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for text in ("git status" + " " * 2500 + "; echo PWNED", "x" * 1024 * 1024 + "; echo PWNED"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.call, "note", {"text": text})
                await until(lambda: len(supervisor.approvals.pending()) == 1)
                line, cure = (await command(state, "list")).splitlines()
                assert 'note(text="' in line and '; echo PWNED")' in line and len(line) < 300, "not the tool's preview"
                assert "toolcell approvals show REQUEST" in cure
                shown = await command(state, "show", line.split()[0])
                assert text.replace(" " * 2500, r"\{2,500 spaces}") in shown and "    | a harmless note" in shown
                assert shown.index("    | a harmless note") < shown.index("\narguments\n"), (
                    "the preview hides no argument"
                )
                await command(state, "deny", line.split()[0])


async def test_an_answer_after_the_supervisor_has_ended_is_used_once_by_the_same_call(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    id = await unanswered(supervise, workspace, state)
    with Approvals.open(state) as approvals:
        approvals.approve(id, by="bob")
    async with supervise([pay], state=state, approval_timeout_s=0.5) as supervisor:
        other = await supervisor.open_session("main", workspace=workspace, session_id="other")
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await other.call("pay", {"amount": 5})).is_error, "another session"
        assert (await session.call("pay", {"amount": 500})).is_error, "other arguments"
        assert (await session.call("pay", {"amount": 5})).output == "paid 5"
        assert (await session.call("pay", {"amount": 5})).is_error, "a replay"
    said = events(state)
    for refused in ("is for the session s", "is for other arguments", "was used before"):
        assert ("refused", f"the approval {id} {refused}") in said
    assert said.count(("answered", "approved")) == 1


async def test_the_story_of_a_call_says_when_an_earlier_request_was_made_and_answered(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    id = await unanswered(supervise, workspace, state)
    with Approvals.open(state) as approvals:
        approvals.approve(id, by="bob")
        entry = approvals.get(id)
    assert entry.request is not None and entry.answered_at is not None
    shown = await command(state, "show", id)
    assert f"answered    {time_of(entry.answered_at)}, approved by bob" in shown
    async with supervise([pay], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        await session.call("pay", {"amount": 5}, call_id="again")
    told = await command(state, "show", "again", of="audit")
    made = f"before, as {entry.request.call_id} at {time_of(entry.request.created_at)}. Its request {id}, open until"
    assert made in told and "Approval was asked" not in told
    assert f"was approved by bob at {time_of(entry.answered_at)}." in told


async def test_the_story_of_a_call_says_for_which_calls_a_standing_approval_holds(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    id = await unanswered(supervise, workspace, state)
    with Approvals.open(state) as approvals:
        standing = approvals.approve(id, pattern={"amount": "?"}, by="bob")
    assert standing is not None
    async with supervise([pay], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("pay", {"amount": 7}, call_id="later")
    told = await command(state, "show", "later", of="audit")
    scope = f"of calls of pay by the agent agent with amount=?, until {time_of(standing.expires_at)}, given by bob."
    assert f"Nobody was asked: approved by the standing approval {standing.id} {scope}" in told


async def test_the_story_of_a_call_says_which_call_had_asked_for_its_confirmation(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with supervise([remove], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        asked = await session.call("remove", {"path": "a"}, call_id="first")
        supervisor.approvals.deny(asked.confirmation, by="bob")
        await session.call("remove", {"path": "a"}, call_id="second")
        entry = supervisor.approvals.get(asked.confirmation)
    request, at = entry.request, entry.answered_at
    assert request is not None and at is not None
    told = await command(state, "show", "second", of="audit")
    made = f"which the call first made at {time_of(request.created_at)}, was not confirmed by bob at {time_of(at)}."
    assert f"The request {request.id}, {made}" in told


async def test_a_list_shows_the_seconds_that_are_left_of_the_last_minute_and_none_of_a_withdrawn_request(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with supervise([pay], state=state, approval_timeout_s=40) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "pay", {"amount": 5})
            await until(lambda: len(supervisor.approvals.pending()) == 1)
            assert re.search(r"pending +[1-4]?\d s left ", await command(state, "list"))
            supervisor.approvals.withdraw(supervisor.approvals.pending()[0].id)
        listed = await command(state, "list", "--all")
    assert "withdrawn" in listed and "left" not in listed


async def test_another_version_of_the_tool_needs_another_approval(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    id = await unanswered(supervise, workspace, state)
    with Approvals.open(state) as approvals:
        approvals.approve(id)

    def other(amount: int) -> str:
        return f"took {amount}"

    changed = tool(other, name="pay", description="Pay.", tier=PermissionTier.ELEVATED)
    async with supervise([changed], state=state, approval_timeout_s=0.3) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("pay", {"amount": 5})).is_error
    assert ("refused", f"the approval {id} is for another version of the tool (1.0.0)") in events(state)


async def test_a_used_row_that_is_put_back_between_two_runs_approves_nothing(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    id = await unanswered(supervise, workspace, state)
    with Approvals.open(state) as approvals:
        approvals.approve(id)
    for output in ("paid 5", None):
        async with supervise([pay], state=state, approval_timeout_s=0.3) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            assert (await session.call("pay", {"amount": 5})).output == output
        with closing(sqlite3.connect(StateDirectory(state).database, isolation_level=None)) as database:
            database.execute("UPDATE requests SET used_at = NULL")


async def test_a_database_from_before_an_approval_was_withdrawn_approves_nothing(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state, database = tmp_path / "state", StateDirectory(tmp_path / "state").database
    id = await unanswered(supervise, workspace, state)
    with Approvals.open(state) as approvals:
        approvals.approve(id)
    copy = database.read_bytes()
    with Approvals.open(state) as approvals:
        approvals.withdraw(id)
    async with supervise([pay], state=state) as supervisor:
        await supervisor.open_session("main", workspace=workspace, session_id="s")
    assert events(state)[-1] == ("withdrawn", "withdrawn")
    database.write_bytes(copy)
    async with supervise([pay], state=state, approval_timeout_s=0.3) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("pay", {"amount": 5})).is_error
    assert ("refused", f"the approval {id} was withdrawn") in events(state)


async def test_a_withdrawal_without_a_supervisor_holds_if_the_database_is_put_back_before_the_next_start(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state, database = tmp_path / "state", StateDirectory(tmp_path / "state").database
    id = await unanswered(supervise, workspace, state)
    with Approvals.open(state) as approvals:
        approvals.approve(id, for_session=True)
        (standing,) = approvals.standing()
    copy = database.read_bytes()
    await command(state, "withdraw", id[:6])
    await command(state, "revoke", standing.id[:6])
    for end in ("", "-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)
    database.write_bytes(copy)
    with Approvals.open(state) as approvals:
        assert approvals.get(id).state == "approved" and not approvals.standing(), "the row was put back"
    for start in range(3):  # at the second, the journal knows both
        async with supervise([pay], state=state, approval_timeout_s=0.3) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            assert (await session.call("pay", {"amount": 5})).is_error, start
    assert {("withdrawn", "withdrawn"), ("revoked", "revoked"), ("refused", f"the approval {id} was withdrawn")} <= set(
        events(state)
    )
    assert (state / "approvals.ended").read_bytes() == b""


async def test_a_used_row_that_is_put_back_after_a_loss_of_the_index_approves_nothing(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    """The segment of the log that has its use was removed for the bound."""
    state, directory = tmp_path / "state", StateDirectory(tmp_path / "state")
    id = await unanswered(supervise, workspace, state)
    with Approvals.open(state) as approvals:
        approvals.approve(id)
    copy = directory.database.read_bytes()
    async with supervise([pay], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("pay", {"amount": 5})).output == "paid 5"
    log = JournalLog(directory.log, (), 1_048_576)
    list(log.open())
    for _segment in range(3):
        log.append(Record("log", "s", data={"text": "x" * 700_000}))
        log._rotate()  # pyright: ignore[reportPrivateUsage] - the thread does it once a second
    assert log.remove_oldest(log.size) > 0
    log.close()
    for end in ("", "-wal", "-shm"):
        directory.index.with_name(directory.index.name + end).unlink(missing_ok=True)
        directory.database.with_name(directory.database.name + end).unlink(missing_ok=True)
    directory.database.write_bytes(copy)
    async with supervise([pay], state=state, approval_timeout_s=0.3, journal_bytes=1_048_576) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("pay", {"amount": 5})).is_error
    assert ("withdrawn", "withdrawn") in events(state)


async def test_a_row_that_is_edited_while_the_call_waits_denies_it(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state, results = tmp_path / "state", list[ToolResult]()
    async with supervise([pay], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)

        async def call() -> None:
            results.append(await session.call("pay", {"amount": 5}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: len(supervisor.approvals.pending()) == 1)
            with closing(sqlite3.connect(StateDirectory(state).database, isolation_level=None)) as database:
                database.execute("UPDATE requests SET request = replace(request, ':5', ':9')")
    error = results[0].error
    assert isinstance(error, PermissionDenied) and error.reason == "the approval does not fit its signature"


async def test_a_standing_approval_lets_later_calls_run_until_it_is_revoked(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    id = await unanswered(supervise, workspace, state)
    assert "agent agent  pay with amount=?" in await command(state, "approve", id[:6], "--matching", "amount=?")
    async with supervise([pay], state=state, approval_timeout_s=0.3) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="later")
        assert (await session.call("pay", {"amount": 7})).output == "paid 7"
        assert (await session.call("pay", {"amount": 70})).is_error
        (standing,) = supervisor.approvals.standing()
        await command(state, "revoke", standing.id[:6])
        assert (await session.call("pay", {"amount": 7})).is_error


async def test_the_approver_and_a_person_may_both_answer_and_the_first_counts(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    queue, results = ApprovalQueue(), list[ToolResult]()
    async with supervise([pay], state=tmp_path / "state", approver=queue) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)

        async def call() -> None:
            results.append(await session.call("pay", {"amount": 5}))

        answers: list[Callable[[str], object]] = [
            lambda id: queue.decide(id, Approved()),
            lambda id: supervisor.approvals.approve(id),
        ]
        for answer in answers:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await until(lambda: len(queue) == 1)
                (request,) = queue
                answer(request.id)
            with pytest.raises(UsageError, match="used already"):
                supervisor.approvals.deny(request.id)
            assert len(queue) == 0
    assert [result.output for result in results] == ["paid 5", "paid 5"]


async def test_the_store_belongs_to_a_running_supervisor(supervise: Supervise, tmp_path: Path) -> None:
    supervisor = supervise([pay], state=tmp_path / "state")
    with pytest.raises(UsageError):
        _ = supervisor.approvals
    async with supervisor:
        assert supervisor.approvals.pending() == []


def test_a_call_that_was_killed_while_it_waited_for_approval_was_not_started() -> None:
    data: dict[str, Any] = {"event": "asked", "tool": "pay", "version": "1.0.0"}
    asked = Record("approval", "s", "c", data)
    assert interrupted([asked]) == [(asked, "not started")]
    assert interrupted([asked, Record("denied", "s", "c", {"error": "permission_denied"})]) == []


@tool(confirms=True)
def remove(ctx: ToolContext, path: str) -> str:
    """Remove something."""
    said = ctx.confirm("Remove it?", {"bytes": 5})
    return f"{path}: {said.payload}" if said else "kept"


async def test_a_call_whose_question_ends_after_it_has_one_end(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    """The records of the question follow the end of the call that has asked it."""
    state = tmp_path / "state"
    async with supervise([remove], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        asked = await session.call("remove", {"path": "a"}, call_id="withdrawn")
        supervisor.approvals.withdraw(asked.confirmation)
        await session.call("remove", {"path": "b"}, call_id="closed")
        answered = await session.call("remove", {"path": "c"}, call_id="answered")
        supervisor.approvals.deny(answered.confirmation)
        assert (await session.call("remove", {"path": "c"}, call_id="again")).output == "kept"
        await session.close()
        await until(lambda: not supervisor.approvals.pending())
    async with supervise([remove], state=state):
        pass
    directory = StateDirectory(state)
    records = [each.record for each in JournalReader(directory.log, directory.index).entries()]
    ends = [(each.call_id, each.data["error"]) for each in records if each.kind == "call"]
    assert ends == [("withdrawn", None), ("closed", None), ("answered", None), ("again", None)]
    assert events(state).count(("withdrawn", "withdrawn")) == 2


@pytest.mark.parametrize("turns", [0, 1, 4])
async def test_the_questions_of_a_closed_session_are_withdrawn_also_if_the_supervisor_ends_at_once(
    supervise: Supervise, workspace: Path, tmp_path: Path, turns: int
) -> None:
    state = tmp_path / "state"
    async with supervise([remove], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for path in "abc":
            await session.call("remove", {"path": path})
        await session.close()
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
    with Approvals.open(state) as approvals:
        assert [entry.state for entry in approvals.all()] == ["withdrawn"] * 3


async def test_the_close_of_a_session_withdraws_the_request_of_a_call_whose_caller_has_gone(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with supervise([pay], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "pay", {"amount": 5})
            await until(lambda: len(supervisor.approvals.pending()) == 1)
            tasks.cancel_scope.cancel()
        await session.close()
    with Approvals.open(state) as approvals:
        assert [entry.state for entry in approvals.all()] == ["withdrawn"]


async def test_a_question_that_is_kept_while_its_session_closes_is_withdrawn(
    supervise: Supervise, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = held_submit(monkeypatch)
    async with supervise([remove], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "remove", {"path": "a"})
            await until(begun.is_set)
            await session.close()
            go_on.set()
        assert [entry.state for entry in supervisor.approvals.all()] == ["withdrawn"]


def held_submit(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Let the first request that is kept wait. Returns the event that tells it has begun, and the one that lets it go
    on."""
    begun, go_on, submit = threading.Event(), threading.Event(), Approvals.submit

    def held(store: Approvals, request: ApprovalRequest, schema: Mapping[str, Any]) -> ApprovalRequest:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return submit(store, request, schema)

    monkeypatch.setattr(Approvals, "submit", held)
    return begun, go_on


async def test_a_confirmation_is_answered_with_data_from_the_command_line(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with supervise([remove, pay], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        asked = await session.call("remove", {"path": "a"})
        told = await command(state, "approve", asked.confirmation, "--payload", '{"really": ["yes", 1]}')
        assert told == "Approved.\n"
        assert 'payload     {"really": ["yes", 1]}' in await command(state, "show", asked.confirmation)
        assert (await session.call_again(asked.confirmation)).output == "a: {'really': ['yes', 1]}"
        wrong = await session.call("remove", {"path": "b"})
        for text in ("{", "[" * 100_000, "9" * 5_000):
            line = [sys.executable, "-I", "-m", "toolcell.cli", "approvals", "approve", wrong.confirmation]
            line += ["--payload", text, "--state", str(state)]
            done = await anyio.to_thread.run_sync(partial(programs.run, line))
            assert done.returncode == 2 and "--payload is not JSON" in done.stderr and "Traceback" not in done.stderr
