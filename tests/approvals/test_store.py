"""The store of approvals: one answer for each request, used once, and no row that was edited."""

import sqlite3
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import PATIENCE_S

from toolcell import ApprovalRequest, Approvals, Approved, Denied, PermissionTier, Preview, SessionKind, UsageError
from toolcell.store.approvals.ended import MOST_BYTES
from toolcell.store.approvals.store import OPEN_BYTES, RESERVE, Unusable
from toolcell.store.approvals.table import COST, KEPT_BYTES
from toolcell.store.directory import ENDED

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}},
    "required": ["amount"],
}
KEY = bytes(range(32))


def asked(**changes: Any) -> ApprovalRequest:
    made: dict[str, Any] = {
        "tool": "pay",
        "version": "1.0.0",
        "fingerprint": "sha256:1",
        "arguments": {"amount": 5, "to": "shop/a"},
        "preview": Preview("pay 5"),
        "tier": PermissionTier.ELEVATED,
        "reason": "it is elevated",
        "call_id": "c1",
        "session_id": "s1",
        "agent_id": "ann",
        "session_kind": SessionKind.MAIN,
        "expires_at": time.time() + 60,
    }
    return ApprovalRequest(**{**made, **changes})


def advance(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clock forward."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Approvals]:
    with Approvals(path, KEY) as opened:
        yield opened


@pytest.fixture
def again(path: Path) -> Iterator[Callable[..., Approvals]]:
    """Opens the store once more, as another process does."""
    with ExitStack() as opened:
        yield lambda key=KEY, **options: opened.enter_context(Approvals(path, key, **options))


def test_an_answer_is_used_once(store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    assert store.take(request.id) is None
    store.approve(request.id, by="ann")
    assert store.take(request.id) == (Approved(), "ann")
    with pytest.raises(Unusable, match="used before"):
        store.take(request.id)
    assert store.get(request.id).state == "used"


def test_another_process_answers_and_the_answer_survives(again: Callable[..., Approvals]) -> None:
    request = again().submit(asked(), SCHEMA)
    again().deny(request.id, "not today", by="bob")
    later = again()
    assert later.submit(asked(call_id="c2"), SCHEMA).id == request.id, "the same call takes the earlier request"
    assert later.take(request.id) == (Denied("not today"), "bob")


def test_an_approval_is_not_lost_when_its_call_could_not_be_committed(store: Approvals, path: Path) -> None:
    request = store.submit(asked(), SCHEMA)
    store.leave(request.id)
    store.approve(request.id)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:  # the clock is written last
        database.execute("CREATE TRIGGER full BEFORE INSERT ON meta BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        with pytest.raises(UsageError, match="disk full"):
            store.submit(asked(call_id="c2"), SCHEMA)
        database.execute("DROP TRIGGER full")
    assert store.submit(asked(call_id="c3"), SCHEMA).id == request.id
    assert store.take(request.id) == (Approved(), "")


def test_an_approval_that_is_given_back_survives_a_change_that_fails(store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    store.leave(request.id)
    store.approve(request.id)
    store.take(request.id)
    store.note_unused(request.id)
    with pytest.raises(UsageError, match="There is no request"):
        store.approve("nobody")
    store.catch_up()
    assert store.get(request.id).state == "approved"
    assert store.take(request.id) == (Approved(), "")
    store.catch_up()
    with pytest.raises(Unusable):
        store.take(request.id)


def test_two_equal_calls_that_wait_at_the_same_time_have_a_request_each(store: Approvals) -> None:
    first, second = store.submit(asked(), SCHEMA), store.submit(asked(), SCHEMA)
    assert first.id != second.id
    store.leave(first.id)
    assert store.submit(asked(), SCHEMA).id == first.id


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"arguments": {"amount": 6, "to": "shop/a"}}, "is for other arguments"),
        ({"version": "2.0.0"}, "is for another version of the tool (1.0.0)"),
        ({"fingerprint": "sha256:2"}, "is for another version of the tool (1.0.0)"),
        ({"session_id": "s2"}, "is for the session s1"),
    ],
)
def test_an_approval_of_another_call_is_not_used_and_is_reported(
    change: dict[str, Any], why: str, store: Approvals
) -> None:
    approved = store.submit(asked(), SCHEMA)
    store.approve(approved.id)
    store.leave(approved.id)
    other = asked(**change)
    assert store.refused(other) == [(approved.id, why)]
    assert store.submit(other, SCHEMA).id == other.id
    assert store.take(other.id) is None


def test_a_used_approval_is_reported_to_the_same_call(store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    store.approve(request.id)
    store.take(request.id)
    store.leave(request.id)
    later = asked()
    assert store.refused(later) == [(request.id, "was used before")]
    assert store.submit(later, SCHEMA).id == later.id


EDITS: dict[str, str] = {
    "arguments": "UPDATE requests SET request = replace(request, '\"amount\":5', '\"amount\":500') WHERE id = :a",
    "session": "UPDATE requests SET request = replace(request, 's1', 's2') WHERE id = :a",
    "expiry, in its column": "UPDATE requests SET expires_at = expires_at + 1e6 WHERE id = :a",
    "tool, in its column": "UPDATE requests SET tool = 'shell' WHERE id = :a",
    "no signature": "UPDATE requests SET signature = x'' WHERE id = :a",
    "a denial made an approval": "UPDATE requests SET answer = replace(answer, 'false', 'true') WHERE id = :a",
    "the answer of another request": (
        "UPDATE requests SET answer = (SELECT answer FROM requests WHERE id = :b) WHERE id = :a"
    ),
    "the whole row of another request": (
        "UPDATE requests SET (request, signature, answer) = "
        "(SELECT request, signature, answer FROM requests WHERE id = :b) WHERE id = :a"
    ),
    "an answer of no one": "UPDATE requests SET answer = NULL WHERE id = :a",
    "no JSON": "UPDATE requests SET request = 'x' WHERE id = :a",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_row_is_invalid_and_no_call_has_its_answer(edit: str, path: Path, store: Approvals) -> None:
    denied = store.submit(asked(), SCHEMA)
    approved = store.submit(asked(arguments={"amount": 1}), SCHEMA)
    store.deny(denied.id)
    store.approve(approved.id)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        assert database.execute(EDITS[edit], {"a": denied.id, "b": approved.id}).rowcount == 1
    entry = store.get(denied.id)
    assert (entry.state, entry.approved, entry.request) == ("invalid", False, None)
    with pytest.raises(Unusable, match="signature"):
        store.take(denied.id)
    with pytest.raises(UsageError, match="edited"):
        store.approve(denied.id)
    assert (denied.id, "does not fit its signature") in store.refused(asked()) or "column" in edit
    store.withdraw(denied.id)


def test_a_used_row_that_is_put_back_is_a_replay(path: Path, store: Approvals, again: Callable[..., Approvals]) -> None:
    request = store.submit(asked(), SCHEMA)
    store.approve(request.id)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        (row,) = database.execute("SELECT * FROM requests").fetchall()
        store.take(request.id)
        database.execute(f"INSERT OR REPLACE INTO requests VALUES ({', '.join('?' * len(row))})", row)
    restarted = again(used=[request.id])  # as the journal knows
    with pytest.raises(Unusable, match="used before"):
        restarted.take(request.id)
    assert restarted.submit(asked(), SCHEMA).id != request.id


def test_a_withdrawn_or_revoked_row_that_is_put_back_is_over(
    path: Path, store: Approvals, again: Callable[..., Approvals]
) -> None:
    request, other = store.submit(asked(), SCHEMA), store.submit(asked(arguments={"amount": 1}), SCHEMA)
    store.approve(request.id)
    standing = store.approve(other.id, for_session=True)
    assert standing is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        copies = {table: database.execute(f"SELECT * FROM {table}").fetchall() for table in ("requests", "standing")}
        again().withdraw(request.id)  # another process
        again().revoke(standing.id)
        found = store.newly_ended()
        assert [(id, how) for id, how, _request in found] == [(request.id, "withdrawn"), (standing.id, "revoked")]
        assert found[0][2] == ("s1", "c1", "pay") and store.newly_ended() == []
        for table, rows in copies.items():
            for row in rows:
                database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    for opened in (store, again(ended=[request.id, standing.id])):  # as the journal knows
        with pytest.raises(Unusable, match="was withdrawn"):
            opened.take(request.id)
        assert opened.covering(asked(arguments={"amount": 7})) is None and opened.standing() == []
        assert (request.id, "was withdrawn") in opened.refused(asked())
        assert opened.submit(asked(), SCHEMA).id != request.id


def test_after_a_loss_of_the_journal_no_approval_that_was_given_holds(
    store: Approvals, again: Callable[..., Approvals]
) -> None:
    given, waits, denied, third = [store.submit(asked(arguments={"amount": amount}), SCHEMA) for amount in (1, 2, 3, 4)]
    store.approve(given.id)
    store.deny(denied.id)
    standing = store.approve(third.id, for_session=True)
    assert standing is not None
    started = again()
    assert started.end_answers() == 3
    assert {id for id, _how, _request in started.newly_ended()} == {given.id, third.id, standing.id}
    with pytest.raises(Unusable, match="withdrawn"):
        started.take(given.id)
    assert started.standing() == [] and started.take(waits.id) is None
    assert started.take(denied.id) == (Denied(), "")


def test_a_process_that_hangs_in_its_transaction_does_not_hold_up_the_count(
    path: Path, again: Callable[..., Approvals], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor counts on its event loop."""
    monkeypatch.setattr("toolcell.store.approvals.store.BUSY_S", PATIENCE_S)
    store = again()
    store.submit(asked(), SCHEMA)
    assert store.pending_count() == 1
    with closing(sqlite3.connect(path, isolation_level=None)) as database, ThreadPoolExecutor(1) as threads:
        database.execute("BEGIN IMMEDIATE")
        waits = threads.submit(store.submit, asked(arguments={"amount": 1}), SCHEMA)
        while not store._lock.locked():  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.01)
        assert store.pending_count() == 1 and store.newly_ended() == []
        assert not waits.done(), "it waited until the other transaction was given up"
        database.execute("COMMIT")
        waits.result()
    assert store.pending_count() == 2


@pytest.mark.parametrize("column", ["used_at", "withdrawn_at"])
def test_the_state_of_a_row_is_signed_too(column: str, path: Path, store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    store.approve(request.id)
    if column == "used_at":
        store.take(request.id)
    else:
        store.withdraw(request.id)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"UPDATE requests SET {column} = NULL")
    assert store.get(request.id).state == "invalid"
    with pytest.raises(Unusable, match="signature"):
        store.take(request.id)
    assert store.refused(asked()) == [(request.id, "does not fit its signature")]


def test_a_revoked_approval_whose_row_is_edited_covers_nothing(path: Path, store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    standing = store.approve(request.id, for_session=True)
    assert standing is not None
    store.revoke(standing.id)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE standing SET revoked_at = NULL")
    assert store.covering(asked()) is None and store.standing() == []


def test_a_clock_that_is_set_back_makes_nothing_valid_again(
    store: Approvals, again: Callable[..., Approvals], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    request = store.submit(asked(), SCHEMA)
    store.approve(request.id, for_session=True, for_s=60.0)
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    store.submit(asked(arguments={"amount": 1}), SCHEMA)  # any change keeps the time
    monkeypatch.setattr(time, "time", lambda: real() - 86_400)
    for opened in (store, again()):
        assert opened.get(request.id).state == "expired" and opened.covering(asked()) is None
        with pytest.raises(Unusable, match="is expired"):
            opened.take(request.id)
    later = again()
    assert later.now() > real() - 60
    fresh = later.submit(asked(arguments={"amount": 2}, expires_at=later.now() + 60), SCHEMA)
    later.approve(fresh.id)
    assert later.take(fresh.id) == (Approved(), "")


def test_a_time_that_was_edited_is_not_used(
    path: Path, store: Approvals, again: Callable[..., Approvals], caplog: pytest.LogCaptureFixture
) -> None:
    store.submit(asked(), SCHEMA)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE meta SET latest = latest + 1e9")
    assert abs(again().now() - time.time()) < 1e8 and "was edited" in caplog.text


def test_another_key_makes_every_row_invalid(store: Approvals, again: Callable[..., Approvals]) -> None:
    request = store.submit(asked(), SCHEMA)
    store.approve(request.id, for_session=True)
    other = again(bytes(32))
    assert other.get(request.id).state == "invalid"
    assert other.covering(asked()) is None and store.covering(asked()) is not None


def test_other_arguments_are_validated_and_signed(store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    with pytest.raises(UsageError, match=r"do not fit the tool 'pay'.*amount"):
        store.approve(request.id, arguments={"amount": "many"})
    for unsendable in ({"amount": 2**2000}, {"amount": 3, "to": "\ud800"}):
        with pytest.raises(UsageError, match="cannot be sent to the tool 'pay'"):
            store.approve(request.id, arguments=unsendable)
    store.approve(request.id, arguments={"amount": 3})
    assert store.take(request.id) == (Approved({"amount": 3}), "")


def test_a_request_takes_one_answer(store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    store.deny(request.id)
    answers: list[Callable[[], object]] = [lambda: store.approve(request.id), lambda: store.deny(request.id)]
    for answer in answers:
        with pytest.raises(UsageError, match="denied already"):
            answer()
    store.answer(request.id, Approved(), "late")
    assert store.take(request.id) == (Denied(), "")


def test_of_many_answers_at_once_one_counts(again: Callable[..., Approvals]) -> None:
    request = again().submit(asked(), SCHEMA)
    stores = [again() for _ in range(8)]

    def approve(store: Approvals) -> bool:
        try:
            store.approve(request.id)
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(approve, stores)) == 1


def test_a_withdrawn_and_an_expired_request_take_no_answer(store: Approvals, monkeypatch: pytest.MonkeyPatch) -> None:
    withdrawn = store.submit(asked(), SCHEMA)
    store.withdraw(withdrawn.id)
    expired = store.submit(asked(arguments={"amount": 1}), SCHEMA)
    store.approve(expired.id)
    advance(monkeypatch, 3600)
    for request, state in ((withdrawn, "withdrawn"), (expired, "expired")):
        assert store.get(request.id).state == state
        with pytest.raises(UsageError, match=state):
            store.approve(request.id)
        with pytest.raises(Unusable, match=state):
            store.take(request.id)


def test_what_is_over_cannot_be_withdrawn(store: Approvals, monkeypatch: pytest.MonkeyPatch) -> None:
    used, withdrawn, expired = [store.submit(asked(arguments={"amount": amount}), SCHEMA) for amount in (1, 2, 3)]
    store.approve(used.id)
    store.take(used.id)
    store.withdraw(withdrawn.id)
    advance(monkeypatch, 3600)
    for request, state in ((used, "used"), (withdrawn, "withdrawn"), (expired, "expired")):
        with pytest.raises(UsageError, match=f"is {state}, so it cannot be withdrawn"):
            store.withdraw(request.id)
        assert store.get(request.id).state == state


@pytest.mark.parametrize(
    "wider", [{"arguments": {"amount": 1}}, {"for_session": True}, {"pattern": {"to": "shop/*"}}], ids=str
)
def test_a_confirmation_holds_for_one_call_with_its_own_arguments(wider: dict[str, Any], store: Approvals) -> None:
    question = store.submit(asked(asks="confirmation"), SCHEMA)
    with pytest.raises(UsageError, match="A confirmation holds for one call with its own arguments"):
        store.approve(question.id, **wider)
    assert store.get(question.id).state == "pending"
    assert store.approve(question.id, payload={"n": 1}) is None
    request = store.submit(asked(), SCHEMA)
    with pytest.raises(UsageError, match="payload is for a tool that asked"):
        store.approve(request.id, payload={"n": 1})


def test_the_bound_of_questions_counts_those_of_the_tool_and_the_session_alone(
    store: Approvals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.store.approvals.store.MAX_QUESTIONS", 2)
    for amount in range(3):
        store.submit(asked(arguments={"amount": amount}), SCHEMA)
        store.submit(asked(arguments={"amount": amount}, asks="confirmation", session_id=f"s{amount}"), SCHEMA)
        store.submit(asked(arguments={"amount": amount}, asks="confirmation", tool=f"tool {amount}"), SCHEMA)
    second = store.submit(asked(arguments={"amount": 9}, asks="confirmation"), SCHEMA)
    with pytest.raises(UsageError, match="2 questions of the tool 'pay' are open"):
        store.submit(asked(arguments={"amount": 10}, asks="confirmation"), SCHEMA)
    store.withdraw(second.id)
    store.submit(asked(arguments={"amount": 10}, asks="confirmation"), SCHEMA)


def test_a_standing_approval_of_a_session_covers_the_tool_there(store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    approval = store.approve(request.id, for_session=True, for_s=60)
    assert approval is not None and store.standing() == [approval]
    assert store.covering(asked(arguments={"amount": 900})) == approval
    for change in ({"session_id": "s2"}, {"fingerprint": "sha256:2"}, {"agent_id": "bob"}, {"tool": "shell"}):
        assert store.covering(asked(**change)) is None
    store.revoke(approval.id[:8])
    assert store.covering(asked()) is None


def test_a_standing_approval_with_a_pattern_covers_what_matches_in_every_session_of_the_agent(
    store: Approvals,
) -> None:
    request = store.submit(asked(), SCHEMA)
    with pytest.raises(UsageError, match="does not match"):
        store.approve(request.id, pattern={"to": "bank/*"})
    assert store.get(request.id).state == "pending"
    approval = store.approve(request.id, pattern={"to": "shop/*", "amount": "5"})
    assert store.covering(asked(session_id="s2", arguments={"amount": 5, "to": "shop/b"})) == approval
    for arguments in ({"amount": 50, "to": "shop/b"}, {"amount": 5}, {"amount": 5, "to": "/shop/b"}):
        assert store.covering(asked(arguments=arguments)) is None
    assert store.covering(asked(agent_id="bob")) is None


def test_a_standing_approval_that_was_edited_or_is_over_covers_nothing(
    path: Path, store: Approvals, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = store.submit(asked(), SCHEMA)
    store.approve(request.id, pattern={"to": "shop/*"})
    short = store.submit(asked(session_id="s2"), SCHEMA)
    store.approve(short.id, for_session=True, for_s=10.0)
    advance(monkeypatch, 20.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE standing SET approval = replace(approval, 'shop/*', '*')")
        database.execute("UPDATE standing SET expires_at = expires_at + 1e6")
    assert store.covering(asked()) is None and store.covering(asked(session_id="s2")) is None


def test_ids_may_be_shortened_while_they_are_unique(store: Approvals) -> None:
    store.submit(asked(id="aab"), SCHEMA)
    store.submit(asked(id="aac", session_id="s2"), SCHEMA)
    assert store.get("aab").id == "aab"
    for id in ("aa", "", "x", "%", "\udcff"):
        with pytest.raises(UsageError, match="request"):
            store.get(id)


def test_a_database_that_cannot_be_written_is_told_with_its_cure_and_uses_no_answer(store: Approvals) -> None:
    request, other = store.submit(asked(), SCHEMA), store.submit(asked(session_id="s2"), SCHEMA)
    store.approve(request.id)
    database = store._database._connection  # pyright: ignore[reportPrivateUsage]
    database.execute("PRAGMA query_only = 1")
    cure = "state.sqlite cannot be used: attempt to write a readonly database. Its file system is read-only"
    for change in (store.approve, store.deny, store.withdraw, store.take):
        with pytest.raises(UsageError, match=cure):
            change(request.id if change == store.take else other.id)
    database.execute("PRAGMA query_only = 0")
    assert store.take(request.id) == (Approved(), ""), "it was not used"
    with pytest.raises(Unusable, match="was used before"):
        store.take(request.id)


def test_a_list_of_ended_approvals_that_cannot_be_read_is_told_with_its_cure(path: Path, store: Approvals) -> None:
    request = store.submit(asked(), SCHEMA)
    with path.with_name(ENDED).open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    words = r"approvals\.ended cannot be used: has more than 16,777,216 bytes. It is damaged"
    for use in (store.approve, store.take, lambda _id: store.covering(asked()), lambda _id: store.newly_ended()):
        with pytest.raises(UsageError, match=words):
            use(request.id)
            store.approve(request.id)


def test_in_memory_nothing_is_written(tmp_path: Path) -> None:
    with Approvals() as store:
        request = store.submit(asked(), SCHEMA)
        before = store.changes()
        assert store.take(request.id) is None and store.changes() == before
        store.approve(request.id)
        assert store.changes() != before and store.take(request.id) == (Approved(), "")
    assert not list(tmp_path.iterdir())


def test_the_digest_of_a_confirmation_has_what_the_tool_asks_and_what_it_was_given() -> None:
    request = asked(asks="confirmation", hint="Pay 5?", payload={"to": "shop/a"}, id="r1", expires_at=1.0)
    changes: list[dict[str, Any]] = [{"hint": "Pay 6?"}, {"payload": {}}, {"given": ({"n": 1},)}, {"approved": True}]
    for change in changes:
        assert replace(request, **change).digest != request.digest, change
    assert replace(request, call_id="c2").digest == request.digest


@pytest.mark.parametrize("scope", [{"for_session": True}, {"pattern": {"to": "shop/*"}}], ids=["session", "pattern"])
def test_a_standing_approval_holds_for_one_line_of_agents(store: Approvals, scope: dict[str, Any]) -> None:
    request = store.submit(asked(agent_id="delegate", ancestors=("ann",)), SCHEMA)
    assert request.line == ("ann", "delegate")
    approval = store.approve(request.id, **scope)
    assert approval is not None and store.standing() == [approval]
    assert store.covering(asked(agent_id="delegate", ancestors=("ann",))) == approval
    others = [
        *(("bob", "delegate"), ("delegate",), ("ann",), ("ann", "bob", "delegate"), ("ann/delegate",)),
        *(("", "ann", "delegate"), ("ann", ""), ("ann", "delegate", "delegate"), ('["ann","delegate"]',)),
    ]
    for *above, last in others:
        assert store.covering(asked(agent_id=last, ancestors=tuple(above))) is None


def test_an_answer_for_one_agents_helper_is_not_used_by_anothers_in_a_session_of_the_same_id(store: Approvals) -> None:
    request = store.submit(asked(agent_id="delegate", ancestors=("ann",)), SCHEMA)
    store.leave(request.id)
    store.approve(request.id)
    bobs = asked(agent_id="delegate", ancestors=("bob",))
    assert store.submit(bobs, SCHEMA).id == bobs.id
    assert store.refused(bobs) == [(request.id, "is for the agent ann/delegate")]
    assert store.submit(asked(agent_id="delegate", ancestors=("ann",)), SCHEMA).id == request.id


MIB = 1024 * 1024


@pytest.mark.parametrize("size", [4 * MIB, 10])
def test_requests_are_bounded_by_session_and_cost_another_session_no_reading(size: int) -> None:
    with Approvals() as store:
        kept = 0
        with pytest.raises(UsageError, match="leave no room in the session"):
            for number in range(10_000):
                store.leave(store.submit(asked(arguments={"to": f"{number:06}".ljust(size, "x")}), SCHEMA).id)
                kept += 1
        assert OPEN_BYTES // 4 < kept * (size + COST) <= OPEN_BYTES // 2 + RESERVE
        tracemalloc.start()
        try:
            quiet = asked(session_id="s2", arguments={"amount": 5, "to": "x" * 100_000})
            assert store.covering(quiet) is None and store.refused(quiet) == []
            store.leave(store.submit(quiet, SCHEMA).id)
            assert store.submit(replace(quiet, id="another"), SCHEMA).id == quiet.id, "the same call"
            store.approve(quiet.id)
            assert store.take(quiet.id) == (Approved(), "") and store.pending_count() == kept
            assert tracemalloc.get_traced_memory()[1] < 2 * MIB, "a request of the flood was read"
        finally:
            tracemalloc.stop()


def test_requests_that_are_over_are_bounded_in_bytes_until_they_expire() -> None:
    with Approvals() as store:
        for number in range(40):
            request = store.submit(asked(arguments={"to": f"{number:06}".ljust(4 * MIB, "x")}), SCHEMA)
            store.approve(request.id)
            assert store.take(request.id) == (Approved(), "")
        kept = [entry.request.arguments["to"][:6] for entry in store.all() if entry.request is not None]
    assert kept == [f"{number:06}" for number in range(40 - len(kept), 40)], "the oldest are removed"
    assert 0 < len(kept) * 4 * MIB <= KEPT_BYTES * 9 // 8
