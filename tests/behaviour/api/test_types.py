"""The types of the public API hold at run time: results by type, required handles, completion."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from toolcell import (
    Capability,
    ErrorBase,
    PermissionDenied,
    Session,
    SessionKind,
    Supervisor,
    ToolContext,
    ToolDefinitionError,
    ToolResult,
    UsageError,
    blocking,
    parse_error,
    tool,
)
from toolcell.testing import run_tool_blocking


class Chart(BaseModel):
    points: list[int]


@tool
def chart() -> Chart:
    return Chart(points=[1])


@tool
async def later(number: int) -> ToolResult[list[int]]:
    return ToolResult[list[int]](output=[number], display="said")


@tool(uses={Capability.WRITE})
def note(ctx: ToolContext) -> str:
    ctx.require.writer.write_text("note", "x")
    return "written"


def test_a_tool_may_say_what_type_of_result_it_returns() -> None:
    result = run_tool_blocking(later, {"number": 3})
    assert (type(result), result.unwrap(), result.display) == (ToolResult, [3], "said")
    assert later.declaration.output_schema is None


def test_what_is_no_json_arrives_as_json_and_is_decoded() -> None:
    result = run_tool_blocking(chart)
    assert (result.unwrap(), result.decoded(Chart)) == ({"points": [1]}, Chart(points=[1]))


@pytest.mark.parametrize("kind", ["main", "worker"])
def test_a_handle_that_is_required_and_not_granted_is_permission_denied(kind: str) -> None:
    error = run_tool_blocking(note, kind=kind).error
    if kind == "main":
        assert error is None
    else:
        assert isinstance(error, PermissionDenied)
        assert error.missing == (Capability.WRITE,)


def test_every_error_has_its_kind_by_the_base_too() -> None:
    error: ErrorBase = parse_error({"kind": "timeout", "message": "late", "elapsed": 1})
    assert error.kind == "timeout"
    assert error.model_dump()["kind"] == "timeout"


def test_a_tool_that_is_defined_wrongly_is_wrong_use() -> None:
    with pytest.raises(UsageError) as caught:
        tool(name="Not a name")(len)
    assert isinstance(caught.value, ToolDefinitionError)


def public(one: object) -> list[str]:
    return [name for name in dir(one) if not name.startswith("_")]


def test_completion_offers_the_public_api_alone(tmp_path: Path) -> None:
    of_session = [
        *("agent_id", "allow_urls", "artifacts", "bring_back", "call", "call_again", "call_many", "close", "closed"),
        "config",
        *("context", "explain", "grants", "id", "invocation_id", "kind", "line", "open_child", "parent", "profile"),
        *("reports", "results", "resume", "retry", "start", "state", "suspend", "tools", "usage", "user_id", "values"),
        "workspace",
    ]
    of_supervisor = [
        *("aclose", "approvals", "journal", "metrics", "nodes", "open_session", "policy", "resume_session", "start"),
        *("status", "suspended_sessions", "task"),
    ]
    with blocking.Supervisor(standby=0) as supervisor:
        session = supervisor.open_session(SessionKind.MAIN, workspace=tmp_path)
        assert public(session._inner) == public(Session) == of_session
        assert public(supervisor._inner) == public(Supervisor) == of_supervisor
        assert public(session) == of_session
        assert set(of_supervisor) <= set(public(supervisor))
        assert list(vars(session._inner)) == ["_core"] and list(vars(supervisor._inner)) == ["_runtime"]
