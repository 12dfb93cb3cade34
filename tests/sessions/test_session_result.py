"""The tally of a session: what is kept, for how much, and what goes to the parent."""

import json
from typing import Any

from toolcell import Artifact, Cancelled, ExecutionError, SessionState, SessionUsage, Timeout, ValidationError
from toolcell.sessions.session_result import MAX_ARTIFACTS, MAX_REPORTS, SessionTally


def test_only_calls_that_failed_for_good_are_reported_and_only_to_the_parent() -> None:
    root = SessionTally("root", "agent")
    middle = SessionTally("middle", "agent", root)
    leaf = SessionTally("leaf", "agent", middle)
    leaf.failed("1", "t", Cancelled(message="closed"))
    leaf.failed("2", "t", Timeout(message="late", elapsed=1.0))
    leaf.failed("3", "t", ExecutionError(message="no"))
    leaf.failed("4", "t", Timeout(message="late", elapsed=1.0), for_good=True)
    assert [one.call_id for one in leaf.errors] == [one.call_id for one in middle.reports] == ["3", "4"]
    assert root.reports == [] and middle.errors == []


def test_everything_is_bounded() -> None:
    root = SessionTally("root", "agent")
    leaf = SessionTally("leaf", "agent", root)
    for number in range(MAX_REPORTS + 1):
        leaf.failed(str(number), "t", ExecutionError(message="no"))
        SessionTally(str(number), "agent", root).result(SessionState.COMPLETED, "")
    assert len(leaf.errors) == len(root.reports) == len(root.results) == MAX_REPORTS
    assert root.results[0].session_id == "1"
    leaf.made(Artifact(str(number), "created") for number in range(MAX_ARTIFACTS + 2))
    leaf.made([Artifact.from_bytes("2", b"x" * 1000, "text/plain")])
    assert len(leaf.artifacts) == MAX_ARTIFACTS and leaf.artifacts[0].path == "3"
    assert leaf.artifacts[-1].path == "2" and leaf.artifacts[-1].data is None and leaf.artifacts[-1].size == 1000


def test_a_report_leaves_out_data_that_is_large() -> None:
    root = SessionTally("root", "agent")
    leaf = SessionTally("leaf", "agent", root)
    small, large = {"d": "x" * 16_000}, {"d": "x" * 17_000}
    for data in (small, large, "y" * 5_000_000):
        leaf.failed("1", "t", ExecutionError(message="no", data=data))
    leaf.failed("2", "t", ValidationError(message="wrong", field="f", parameters_schema=large), for_good=True)
    errors: list[Any] = [one.error for one in root.reports]
    assert [error.data for error in errors[:3]] == [small, None, None]
    assert (errors[3].message, errors[3].field, errors[3].parameters_schema) == ("wrong", "f", None)
    assert len(json.dumps(root.to_data())) < 20_000


def test_the_result_of_a_child_counts_for_its_parent() -> None:
    root = SessionTally("root", "agent")
    leaf = SessionTally("leaf", "agent", root)
    root.calls, leaf.calls, leaf.cpu_s, leaf.bytes = 1, 2, 0.5, 10
    leaf.made([Artifact("a", "created")])
    result = leaf.result(SessionState.FAILED, "why")
    assert (result.outcome, result.summary) == (SessionState.FAILED, "why")
    assert root.usage == SessionUsage(calls=3, cpu_s=0.5, bytes=10)
    assert root.artifacts == result.artifacts == (Artifact("a", "created"),) and root.results == [result]


def test_a_tally_is_restored_from_its_data() -> None:
    root = SessionTally("root", "agent")
    leaf = SessionTally("leaf", "agent", root)
    leaf.calls, leaf.wall_s = 2, 1.5
    leaf.made([Artifact("a", "created", size=1)])
    leaf.failed("1", "t", ExecutionError(message="no", data={"n": [1]}))
    leaf.result(SessionState.COMPLETED, "done")
    again = SessionTally("root", "agent")
    again.restore(json.loads(json.dumps(root.to_data())))
    assert again.to_data() == root.to_data() and again.results == root.results and again.reports == root.reports
    assert again.usage == root.usage and again.artifacts == root.artifacts
