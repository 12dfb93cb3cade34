"""The error of each ending, and what a cell cannot say by its report. `tests/behaviour/outcomes` has real calls."""

import signal
from typing import Any, get_args

import pytest

from toolcell import Limits, tool
from toolcell.dispatch.call_errors import MESSAGE_CHARS, error_of, limit_exceeded
from toolcell.pool.run import Ending, Outcome
from toolcell.wire.messages import REASONS, Progress
from toolcell_tools.errors import LimitedResource, ToolError

LIMITS = Limits(memory_bytes=64 << 20)


def work(path: str) -> str:
    """Work."""
    return path


DECLARATION = tool(work, needs={"read"}).declaration


def error(ending: Ending, **facts: Any) -> ToolError:
    return error_of(Outcome(ending, **facts), DECLARATION, LIMITS, 1.5)


ERRORS: dict[Ending, str] = {
    "error": "execution",
    "exited": "crashed",
    "lost": "crashed",
    "timeout": "timeout",
    "limit": "limit_exceeded",
    "violation": "protocol_violation",
    "unavailable": "sandbox_unavailable",
    "overloaded": "overloaded",
    "cancelled": "cancelled",
    "node_lost": "node_lost",
    "moved": "overloaded",
}


def test_every_ending_but_a_result_has_its_error() -> None:
    assert {*ERRORS, "result"} == set(get_args(Ending))
    assert {ending: error(ending, resource="memory").kind for ending in ERRORS} == ERRORS


def test_an_exit_tells_its_signal_or_its_code_and_a_lost_pipe_is_a_violation() -> None:
    killed, odd, left = error("exited", code=-signal.SIGSEGV), error("exited", code=-64), error("exited", code=3)
    assert killed.kind == odd.kind == left.kind == "crashed"
    assert (killed.signal, killed.exit_code) == (11, None) and "SIGSEGV" in killed.message
    assert odd.signal == 64 and (left.signal, left.exit_code) == (None, 3)
    assert error("exited", code=-signal.SIGPIPE).kind == "protocol_violation"


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_of_a_runner_has_an_error_with_a_bounded_message(reason: str) -> None:
    found = error("error", reason=reason, message="x" * 2 * MESSAGE_CHARS)
    assert len(found.message) <= MESSAGE_CHARS
    assert found.kind not in {"sandbox_unavailable", "overloaded", "node_lost", "cancelled", "unknown_tool"}


def test_a_report_selects_a_limit_and_does_not_say_how_high_it_is() -> None:
    found = error("error", reason="memory", message="I had 1 byte", payload={"limit": 1})
    assert found.kind == "limit_exceeded" and (found.resource, found.limit) == ("memory", 64 << 20)
    assert "1 byte" not in found.message


def test_a_report_names_no_capability_and_no_field_that_there_is_not() -> None:
    denied = error("error", reason="permission", payload={"capability": "root"})
    assert denied.kind == "permission_denied" and denied.missing == ()
    known = error("error", reason="permission", payload={"capability": "write"})
    assert known.kind == "permission_denied" and known.missing == ("write",)
    wrong = error("error", reason="arguments", payload={"field": ["path"]})
    assert wrong.kind == "validation" and wrong.field is None
    assert wrong.parameters_schema == DECLARATION.parameters_schema


@pytest.mark.parametrize("resource", [*get_args(LimitedResource), "scratch_inodes"])
def test_every_limit_has_its_value_with_a_unit(resource: str) -> None:
    found = limit_exceeded(resource, "work", LIMITS)
    assert found.limit in vars(LIMITS).values() and found.resource in get_args(LimitedResource)
    assert "exceeded its limit on" in found.message


def test_only_a_failure_that_may_pass_is_worth_another_try() -> None:
    passing = error("unavailable", message="no process", retry_after_s=0.1)
    assert passing.retryable and not error("unavailable", message="no landlock").retryable
    assert error("timeout").retryable and error("overloaded", retry_after_s=2.0).retryable


def test_a_call_that_was_cut_short_has_its_last_progress_and_no_control_characters() -> None:
    found = error("timeout", progress=Progress(1, "half\x1b[2J", 0.5))
    assert found.kind == "timeout" and found.progress is not None
    assert (found.progress.fraction, "\x1b" in found.progress.message) == (0.5, False)
    assert not hasattr(error("unavailable", progress=Progress(1, "half", 0.5)), "progress")
