"""What a call may do, as a function of what its session holds and what its tool asks for."""

from pathlib import Path
from typing import Any

import pytest

from toolcell import Capability, Profile, SessionKind, ToolContext, tool
from toolcell.sessions.grants import grants_for, session_grants
from toolcell_tools.capability import CHANGING

ALL = frozenset(Capability)
C = Capability


def test_a_call_is_given_what_its_session_holds_of_what_its_tool_asks_for() -> None:
    grants = grants_for({C.READ, C.WEB, C.NET}, {C.READ, C.WRITE}, {C.WEB, C.EXEC})
    assert grants.given == {C.READ, C.WEB}
    assert grants.missing == {C.WRITE}, "a need that is missing; a use is not"


@pytest.mark.parametrize("needs", [set(), {C.READ}, {C.READ, C.WEB}], ids=["nothing", "read", "read and web"])
def test_a_call_that_changes_nothing_has_no_use_that_could_change_anything(needs: set[Capability]) -> None:
    grants = grants_for(ALL, needs, ALL, mutates=False)
    assert grants.given == ALL - CHANGING and not grants.missing


def test_what_a_tool_needs_it_has_whether_or_not_the_call_changes_anything() -> None:
    assert grants_for(ALL, {C.WRITE}, set(), mutates=False).given == {C.WRITE}
    assert grants_for(ALL, {C.READ}, {C.WRITE}).given == {C.READ, C.WRITE}


@pytest.mark.parametrize("kind", list(SessionKind))
def test_a_session_holds_no_more_than_its_kind_its_profile_and_its_parent(kind: SessionKind) -> None:
    whole = session_grants(kind, Profile(grants=frozenset(Capability)), None)
    assert whole == (ALL if kind is not SessionKind.WORKER else {C.READ, C.MEMORY_READ, C.WEB})
    assert session_grants(kind, Profile(grants=frozenset({C.READ, C.EXEC})), None) == whole & {C.READ, C.EXEC}
    assert session_grants(kind, Profile(grants=frozenset(Capability)), {C.READ, C.NET}) == whole & {C.READ, C.NET}
    assert session_grants(kind, Profile(grants=frozenset({C.READ})), {C.NET}) == set()


@tool(needs={C.READ}, uses={C.WRITE}, mutates=lambda arguments: arguments["change"])
def perhaps(ctx: ToolContext, change: bool) -> str:
    """Write if there is a handle, and past it."""
    try:
        (ctx.workspace_root / "made").write_text("made")
    except OSError:
        return "no right" if ctx.writer is None else "a handle, but no right"
    return "a right" if ctx.writer is not None else "no handle, but a right"


@pytest.mark.anyio
async def test_a_tool_that_needs_to_read_and_may_write_does_not_write_in_a_call_that_changes_nothing(
    supervise: Any, workspace: Path
) -> None:
    async with supervise([perhaps]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("perhaps", {"change": False})).unwrap() == "no right"
        assert not (workspace / "made").exists()
        assert (await session.call("perhaps", {"change": True})).unwrap() == "a right"
