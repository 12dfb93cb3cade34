"""A state directory of version 1, made with the code of that version, is migrated, and nothing in it is lost."""

import sqlite3
import tarfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import PATIENCE_S

from toolcell import Approvals, Approved, PermissionTier, Preview, SessionKind, UsageError, tool
from toolcell.store.approvals import ApprovalRequest
from toolcell.store.approvals.store import Unusable
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.reading import JournalReader
from toolcell.store.migrations import VERSION
from toolcell.supervisor import Supervisor

VERSION_1 = Path(__file__).with_name("version1")
"""Made with the code of version 1: a journal with a call that has ended and one that was killed, five requests for
approval and a standing approval, and the result of a task. The tables are dumps, the other files are hexadecimal."""
FAR = 4102444800.0


@pytest.fixture
def old(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for name in ("approvals", "journal", "results"):
        with closing(sqlite3.connect(state / f"{name}.sqlite", isolation_level=None)) as database:
            database.executescript((VERSION_1 / f"{name}.sql").read_text())
    for name in ("journal.log", "key"):
        (state / name).write_bytes(bytes.fromhex((VERSION_1 / f"{name}.hex").read_text()))
        (state / name).chmod(0o600)
    (state / "version").write_text("1\n")
    return state


def asked(amount: int) -> ApprovalRequest:
    made: dict[str, Any] = {
        "tool": "pay",
        "version": "1.0.0",
        "fingerprint": "sha256:1",
        "tier": PermissionTier.ELEVATED,
    }
    return ApprovalRequest(
        **made,
        arguments={"amount": amount},
        preview=Preview(f"pay {amount}"),
        reason="it is elevated",
        call_id="later",
        session_id="s",
        agent_id="ann",
        session_kind=SessionKind.MAIN,
        expires_at=FAR,
    )


@tool
def echo(value: int) -> int:
    """Return the value."""
    return value


@pytest.mark.anyio
@pytest.mark.few_on_trio
async def test_a_supervisor_migrates_it_and_goes_on_with_it(old: Path, tmp_path: Path) -> None:
    async with Supervisor([echo], state=old) as supervisor:
        assert StateDirectory(old).version() == VERSION
        assert (await supervisor.task("nightly").result()).output == "built"
        states = {entry.id: entry.state for entry in supervisor.approvals.all()}
        assert states == {
            "pending": "pending",
            "approved": "approved",
            "used": "used",
            "withdrawn": "withdrawn",
            "edited": "invalid",
        }
        kept = supervisor.approvals.submit(asked(2), {"type": "object"})
        assert kept.id == "approved" and supervisor.approvals.take("approved") == (Approved(), "ann")
        with pytest.raises(Unusable, match="is used"):
            supervisor.approvals.take("used")
        (standing,) = supervisor.approvals.standing()
        assert (standing.pattern, standing.line) == ({"amount": "3"}, ("ann",))
        assert supervisor.approvals.covering(asked(3)) == standing
        assert supervisor.approvals.covering(replace(asked(3), ancestors=("bob",))) is None, "of some ann's, not of his"
        supervisor.approvals.approve("pending")
    directory = StateDirectory(old)
    reader = JournalReader(directory.log, directory.index)
    ends = {each.record.call_id: each.record.data["error"] for each in reader.entries() if each.record.kind == "call"}
    assert ends == {"ended": None, "killed": "interrupted"}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not reader.records("call = ?", ("killed",), wanted=lambda _: False, last=9):
        time.sleep(0.05)
    reader.verify()


def test_another_process_does_not_read_it_before(old: Path) -> None:
    with pytest.raises(UsageError, match=r"has version 1, .*Start a supervisor on it once"):
        Approvals.open(old)


def test_a_migration_that_was_killed_is_begun_again_and_done_once(old: Path) -> None:
    for _again in range(2):
        directory = StateDirectory(old)
        directory.open_to_write()
        directory.close()
        (old / "version").write_text("1\n")  # as if it had been killed before it wrote the version
    (old / "version").write_text(f"{VERSION}\n")
    with Approvals.open(old) as approvals:
        assert [entry.id for entry in approvals.pending()] == ["pending"]


def test_a_request_that_was_edited_to_be_too_deep_stops_no_migration(old: Path) -> None:
    with closing(sqlite3.connect(old / "approvals.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE requests SET request = ? WHERE id = 'pending'", ("[" * 100_000,))
    directory = StateDirectory(old)
    directory.open_to_write()
    directory.close()
    with Approvals.open(old) as approvals:
        assert approvals.pending() == []


def test_who_puts_rows_of_version_1_back_has_no_edited_state_signed(tmp_path: Path) -> None:
    """Version 1 did not sign that an answer was used. Its signatures name no version, so a row of a later version does
    not pass for one of version 1."""
    state = tmp_path / "later"
    with tarfile.open(VERSION_1.with_name("version4.tar.xz")) as made:
        made.extractall(state, filter="data")
    state.chmod(0o700)
    with closing(sqlite3.connect(state / "approvals.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE requests SET withdrawn_at = NULL")
        database.execute("ALTER TABLE requests DROP COLUMN state_signature")
        database.execute("ALTER TABLE standing DROP COLUMN state_signature")
        database.execute("ALTER TABLE standing DROP COLUMN revoked_at")
    (state / "version").write_text("1\n")
    directory = StateDirectory(state)
    directory.open_to_write()
    directory.close()
    with Approvals.open(state) as approvals:
        assert {entry.state for entry in approvals.all()} == {"invalid"} and approvals.standing() == []
