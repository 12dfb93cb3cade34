"""The store of results: what a call means that had no result when its supervisor was killed."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from toolcell.store.state.results import KeptCall, Kind, ResultStore

INTERRUPTED = {"error": "interrupted", "outcome": "outcome unknown"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(ResultStore(tmp_path / "results.sqlite")) as opened:
        yield opened


@pytest.mark.parametrize("kind", ["key", "task"])
@pytest.mark.parametrize(
    ("end", "began_ago_s", "outcome"),
    [
        (None, -60.0, "not started"),
        (None, 60.0, "outcome unknown"),  # the segment that had its end may have been removed
        (INTERRUPTED, 60.0, "outcome unknown"),
        ({"error": "interrupted", "outcome": "not started"}, 60.0, "not started"),
        ({"error": None}, -60.0, "outcome unknown"),
    ],
)
def test_a_call_that_the_journal_does_not_know_is_free_only_if_the_journal_reaches_back_to_it(
    store: ResultStore, kind: Kind, end: Mapping[str, object] | None, began_ago_s: float, outcome: str
) -> None:
    call = KeptCall(kind, "s", "k", "asked", "c", None)
    store.begin(call)
    (begun,) = store.begun()
    assert abs(begun.at - time.time()) < 60
    store.settle(begun, end, begun.at + began_ago_s)
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
    store.begin(KeptCall("task", "s", "k", "asked", "c", None))
    (begun,) = store.begun()
    store.settle(begun, end, begun.at)
    found = store.find("task", "s", "k")
    assert found is not None and found.result is not None and found.result.error is not None
    assert said in found.result.error.message
