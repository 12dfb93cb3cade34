"""The gate: which limits hold for a call, by its tool and by the kind of its session."""

from toolcell.dispatch.turnstile import Gate
from toolcell.rules.limits import Concurrency
from toolcell_tools import SessionKind


def test_a_call_passes_the_turnstile_of_its_tool_and_that_of_its_kind() -> None:
    gate = Gate(Concurrency(tools={"build": 2}, kinds={SessionKind.WORKER: 5}))
    assert gate.is_limited
    limits = {
        (tool, kind): [turnstile.limit for turnstile in gate.turnstiles(tool, kind)]
        for tool in ("build", "read")
        for kind in (SessionKind.MAIN, SessionKind.WORKER)
    }
    assert limits == {
        ("build", SessionKind.MAIN): [2],
        ("build", SessionKind.WORKER): [2, 5],
        ("read", SessionKind.MAIN): [],
        ("read", SessionKind.WORKER): [5],
    }


def test_all_calls_of_a_tool_pass_the_same_turnstile() -> None:
    gate = Gate(Concurrency(tools={"build": 2}))
    assert gate.turnstiles("build", SessionKind.MAIN)[0] is gate.turnstiles("build", SessionKind.WORKER)[0]


def test_without_limits_nothing_is_asked() -> None:
    gate = Gate(Concurrency())
    assert not gate.is_limited and gate.turnstiles("build", SessionKind.MAIN) == []
