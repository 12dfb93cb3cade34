"""The store of results: what a call means that had no result when its supervisor was killed."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from toolcell.store.database import Database
from toolcell.store.journal import Record
from toolcell.store.results import KeptCall, Kind, ResultStore
from toolcell.store.schema import CALLS, STATE
from toolcell_tools.result import ToolResult

INTERRUPTED = {"error": "interrupted", "outcome": "outcome unknown"}


@pytest.fixture
def claims() -> list[Record]:
    return []


@pytest.fixture
def store(tmp_path: Path, claims: list[Record]) -> Iterator[ResultStore]:
    def claim(record: Record) -> int:
        claims.append(record)
        return len(claims)

    with closing(Database(tmp_path / "state.sqlite", b"k" * 32, STATE)) as database:
        yield ResultStore(database, claim)


@pytest.mark.parametrize("kind", ["key", "task"])
@pytest.mark.parametrize(
    ("end", "is_known", "outcome"),
    [
        (None, True, "not started"),
        (None, False, "outcome unknown"),  # the segment that had its end may have been removed
        (INTERRUPTED, False, "outcome unknown"),
        ({"error": "interrupted", "outcome": "not started"}, False, "not started"),
        ({"error": None}, True, "outcome unknown"),
    ],
)
def test_a_call_that_the_journal_does_not_know_is_free_only_if_the_journal_reaches_back_to_it(
    store: ResultStore, kind: Kind, end: Mapping[str, object] | None, is_known: bool, outcome: str
) -> None:
    begun = store.begin(KeptCall(kind, "s", "k", "asked", "c"))
    assert store.begun() == [begun] and begun.mark == 1
    store.settle(begun, end, is_known=is_known)
    found = store.find(kind, "s", "k")
    if kind == "key" and outcome == "not started":
        assert found is None
    else:
        assert found is not None and found.result is not None and found.result.error is not None
        assert found.result.error.outcome == outcome
    assert store.begun() == []


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            {"error": "execution", "outcome": "finished"},
            "The call has failed (execution), but its supervisor was killed",
        ),
        ({"error": "interrupted", "outcome": "finished"}, "killed before the call ended. The call cannot have changed"),
        ({"error": None}, "The call has finished, but its supervisor was killed before its result was kept."),
    ],
)
def test_a_lost_result_says_how_the_call_ended(store: ResultStore, end: Mapping[str, object], said: str) -> None:
    begun = store.begin(KeptCall("task", "s", "k", "asked", "c"))
    store.settle(begun, end, is_known=True)
    found = store.find("task", "s", "k")
    assert found is not None and found.result is not None and found.result.error is not None
    assert said in found.result.error.message


def test_a_result_that_could_not_be_written_is_written_later(store: ResultStore, tmp_path: Path) -> None:
    begun = [store.begin(KeptCall("key", "s", key, "asked", key)) for key in ("a", "b")]
    result = ToolResult.build(output=1, call_id="a", session_id="s")
    store._database.wait_at_most(0.0)  # pyright: ignore[reportPrivateUsage]
    with closing(sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            store.finish(begun[0], result)
    store.finish(begun[1], result)
    for key in ("a", "b"):
        found = store.find("key", "s", key)
        assert found is not None and found.result == result


@pytest.mark.parametrize(
    ("end", "is_free"),
    [
        (None, True),
        ({"error": None}, False),
        (INTERRUPTED, False),
        ({"error": "execution", "outcome": "finished"}, True),
        ({"error": "cancelled", "outcome": "not started"}, True),
    ],
)
def test_a_claim_whose_row_was_lost_is_kept_again_unless_its_key_is_free(
    store: ResultStore, claims: list[Record], end: Mapping[str, object] | None, is_free: bool
) -> None:
    for key in ("lost", "freed", "there"):
        store.begin(KeptCall("key", "s", key, "asked", key))
    store.forget(KeptCall("key", "s", "freed", "asked", "freed"))
    store._database.remove(CALLS, "id = 'lost'")  # pyright: ignore[reportPrivateUsage]
    found = store.heal(list(enumerate(claims, 1)), 0, lambda _call: end)
    assert found == (0 if is_free else 1)
    lost = store.find("key", "s", "lost")
    assert (lost is None) is is_free and store.find("key", "s", "freed") is None
    if lost is not None:
        assert lost.result is not None and lost.result.error is not None and lost.is_of("asked")
        assert "its result was lost" in lost.result.error.message and lost.result.error.outcome == "outcome unknown"
