"""What a cell is told: its tools, its session, and the facts of each call."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.pool.fakes import FakeRun, spec

from toolcell.pool.cell.cell import introduction_to, load_of
from toolcell.pool.run import CellSpec, context_of
from toolcell.rules.call import ToolCall
from toolcell_sandbox import CellProfile, Limits
from toolcell_sandbox.view import Bind
from toolcell_tools import SessionInfo, SessionKind


def spec_of(profile: CellProfile, **changes: Any) -> CellSpec:
    return dataclasses.replace(spec(), profile=profile, **changes)


def test_a_cell_gets_its_tools_its_limits_and_an_environment_without_the_programs_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    limits = Limits(cpu_s=3.0, result_bytes=70, file_bytes=80)
    of = spec_of(CellProfile(limits=limits), tools=({"name": "read"},), cwd="/w", session={"id": "s"})
    load = load_of(of, kept=True, standby=False)
    assert (load.tools, load.cwd, load.session) == ([{"name": "read"}], "/w", {"id": "s"})
    assert (load.kept, load.standby, load.unbound) == (True, False, False)
    assert (load.cpu_s, load.result_bytes, load.file_bytes) == (3.0, 70, 80)
    assert "secret" not in str(load.environ)


@pytest.mark.parametrize("writable", [(), ("/w",)], ids=["read-only", "writable"])
def test_a_cell_is_told_of_protected_names_where_it_may_write(writable: tuple[str, ...]) -> None:
    profile = CellProfile(writable=writable, protected=(".git",))
    load = load_of(spec_of(profile), kept=False, standby=True)
    assert load.writable == list(writable)
    assert load.protected == ([".git"] if writable else [])


def test_a_prewarmed_cell_gets_later_what_others_get_at_once() -> None:
    of = spec_of(CellProfile(writable=("/w",), protected=(".git",)), cwd="/w", session={"id": "s"})
    bind = Bind("/w/caf\udce9", True, True, (1, 2), None)
    said, load = introduction_to(of, [bind]), load_of(of, kept=False, standby=False)
    assert said.binds == [bind.to_wire()]
    assert said[1:] == (load.cwd, load.writable, load.protected, load.session)


def run_of(**call: Any) -> FakeRun:
    run = FakeRun("c1", spec())
    run.sent = ToolCall("c1", "tool", {}, **call)
    return run


def info(**changes: Any) -> SessionInfo:
    return SessionInfo("s", "agent", SessionKind.MAIN, None, frozenset(), Path("/w"), **changes)


def test_a_plain_call_is_told_its_time_only() -> None:
    run = run_of(session=info())
    assert context_of(run, run.deadline_at - 2.5) == {"remaining_s": pytest.approx(2.5)}


def test_a_call_is_told_what_is_not_as_always() -> None:
    run = run_of(session=info(config={"a": 1}, values={"b": 2}, invocation_id="turn 3"), attempt=2)
    run.preview, run.confirm, run.trace = True, [{"answer": "yes"}], {"traceparent": "00"}
    context = context_of(run, run.deadline_at)
    assert context.pop("remaining_s") == pytest.approx(0.0)
    assert context == {
        "config": {"a": 1},
        "values": {"b": 2},
        "invocation_id": "turn 3",
        "attempt": 2,
        "preview": True,
        "confirm": [{"answer": "yes"}],
        "trace": {"traceparent": "00"},
    }


def test_a_call_that_may_be_confirmed_and_was_not_is_told_so() -> None:
    run = run_of()
    run.confirm = []
    assert context_of(run, run.deadline_at)["confirm"] == []
