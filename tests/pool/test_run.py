"""A call in the pool: the identity of its cell, its one outcome, and what a retry can do."""

from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

from toolcell.pool.reactor import Waiter
from toolcell.pool.run import FAILURE_CHARS, SOON_S, CellKey, Outcome, unavailable
from toolcell.wire.messages import Failed
from toolcell_sandbox import Limits

from .fakes import FakeRun, FakeWaiter, spec

KEY = CellKey("s", frozenset({"read"}), Limits(), "", "c0de", (1, 2, 3), "p0")


@pytest.mark.parametrize(
    "change",
    [
        {"session_id": "t"},
        {"grants": frozenset({"read", "write"})},
        {"limits": Limits(wall_s=1.0)},
        {"kept_tool": "repl"},
        {"code": "other"},
        {"workspace": (1, 2, 4)},
        {"protected": "p1"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_cell_is_for_one_key_and_every_field_is_a_part_of_it(change: dict[str, Any]) -> None:
    other = replace(KEY, **change)
    assert other != KEY and len({KEY, other, replace(other)}) == 2


def test_a_key_replaces_one_that_differs_in_its_protected_paths_only() -> None:
    assert replace(KEY, protected="p1").replaces(KEY)
    assert not KEY.replaces(replace(KEY))
    assert not replace(KEY, protected="p1", code="other").replaces(KEY)


def test_the_first_outcome_of_a_run_stays() -> None:
    run = FakeRun("c1", spec())
    waiter = FakeWaiter()
    run.waiter = cast("Waiter[Outcome]", waiter)
    first = Outcome(ending="timeout")
    assert run.end(first, run.queued_at + 3.0)
    assert not run.end(Outcome(ending="result"), run.queued_at + 9.0)
    assert run.outcome is first and waiter.value is first
    assert run.elapsed_s == pytest.approx(3.0)


def test_the_time_of_a_run_is_that_in_the_queue_and_that_in_its_cell() -> None:
    run = FakeRun("c1", spec())
    run.started_at = run.queued_at + 2.0
    run.end(Outcome(ending="result"), run.queued_at + 7.0)
    assert run.used["queue_s"] == pytest.approx(2.0) and run.used["wall_s"] == pytest.approx(5.0)


def test_the_use_of_one_run_is_not_that_of_another() -> None:
    one, other = FakeRun("c1", spec()), FakeRun("c2", spec())
    one.used["cpu_s"] = 1.0
    assert other.used["cpu_s"] == 0.0


@pytest.mark.anyio
async def test_the_end_of_a_run_is_seen_by_a_closing_session_and_by_who_waits_for_its_processes() -> None:
    run = FakeRun("c1", spec())
    run.over, run.gone = anyio.Event(), anyio.Event()
    run.end(Outcome(ending="cancelled"), run.queued_at)
    assert run.over.is_set() and run.gone.is_set()


@pytest.mark.anyio
async def test_the_processes_of_a_run_that_has_a_cell_are_not_gone_with_its_outcome() -> None:
    run = FakeRun("c1", spec())
    run.cell, run.over, run.gone = cast("Any", object()), anyio.Event(), anyio.Event()
    run.end(Outcome(ending="timeout"), run.queued_at)
    assert run.over.is_set() and not run.gone.is_set()


def test_the_repr_of_a_run_says_where_it_is() -> None:
    run = FakeRun("c1", spec())
    assert repr(run) == "<Run c1 of tool · queued>"
    run.cell = cast("Any", object())
    assert repr(run) == "<Run c1 of tool · running>"
    run.end(Outcome(ending="lost"), run.queued_at)
    assert repr(run) == "<Run c1 of tool · lost>"


@pytest.mark.parametrize("step", ["fork", "spawn", "start", "open trees"])
def test_a_cell_that_could_not_be_made_for_a_passing_reason_can_be_retried_soon(step: str) -> None:
    assert unavailable(Failed(step, "no", "", "")).retry_after_s == SOON_S


def test_a_missing_mechanism_is_no_reason_to_retry_and_its_words_are_bounded() -> None:
    long = "x" * (FAILURE_CHARS + 1)
    outcome = unavailable(Failed("landlock", long, long, long))
    assert (outcome.ending, outcome.retry_after_s) == ("unavailable", None)
    assert [len(text) for text in (outcome.message, outcome.mechanism, outcome.cure)] == [FAILURE_CHARS] * 3
