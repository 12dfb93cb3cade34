"""Policies: what each tier may do, by tool, kind, agent and channel."""

from pathlib import Path
from typing import Any, get_args

import pytest

from toolcell import (
    Capability,
    PermissionDenied,
    PermissionTier,
    SessionInfo,
    SessionKind,
    TierPolicy,
    UsageError,
    tool,
)
from toolcell.call import ToolCall
from toolcell.policy import Decision


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough: nothing here waits in a way of its own."""
    return "asyncio"


@tool(tier=PermissionTier.READ_ONLY)
def look() -> str:
    """Look."""
    return "seen"


@tool(tier=PermissionTier.SYSTEM)
def act() -> str:
    """Act."""
    return "done"


@tool(tier=PermissionTier.ELEVATED)
def destroy() -> str:
    """Destroy."""
    return "gone"


@tool(tier=PermissionTier.WORKSPACE, needs={Capability.WRITE})
def change() -> str:
    """Change."""
    return "changed"


TOOLS = [look, act, destroy, change]


def info(kind: SessionKind = SessionKind.MAIN, agent: str = "agent", channel: str = "") -> SessionInfo:
    return SessionInfo("s", agent, kind, None, frozenset(), Path("/w"), channel)


def decided(policy: TierPolicy, name: str, session: SessionInfo | None = None) -> Decision:
    declaration = next(one.declaration for one in TOOLS if one.name == name)
    return policy.decide(ToolCall("c", name, {}), declaration, session or info())


@pytest.mark.parametrize(
    ("name", "wanted"), [("look", "allow"), ("change", "allow"), ("act", "allow"), ("destroy", "ask")]
)
def test_by_default_only_elevated_tools_need_approval(name: str, wanted: Decision) -> None:
    assert decided(TierPolicy(), name) == wanted


def test_a_name_stands_in_the_place_of_the_tier() -> None:
    policy = TierPolicy(system="deny", tools={"act": "allow", "look": "ask"})
    assert (decided(policy, "act"), decided(policy, "look"), decided(policy, "change")) == ("allow", "ask", "allow")


def test_system_tools_are_restrictable_by_agent_by_channel_and_by_kind() -> None:
    policy = TierPolicy(
        agents={"intern": TierPolicy(system="deny")},
        channels={"public": TierPolicy(system="ask")},
        kinds={SessionKind.BRANCH: TierPolicy(workspace="deny")},
    )
    assert decided(policy, "act") == "allow"
    assert decided(policy, "act", info(agent="intern")) == "deny"
    assert decided(policy, "act", info(channel="public")) == "ask"
    assert decided(policy, "act", info(agent="intern", channel="public")) == "deny"
    assert decided(policy, "change", info(kind=SessionKind.BRANCH)) == "deny"


@pytest.mark.parametrize(
    ("name", "exceptions"),
    [
        ("channels", {"public": TierPolicy(system="deny")}),
        ("agents", {"intern": TierPolicy(system="deny")}),
        ("kinds", {SessionKind.BRANCH: TierPolicy(system="deny")}),
        ("tools", {"act": "deny"}),
    ],
)
def test_each_kind_of_exception_holds_where_there_is_no_other(name: str, exceptions: Any) -> None:
    policy = TierPolicy(**{name: exceptions})
    assert decided(policy, "act", info(SessionKind.BRANCH, "intern", "public")) == "deny"
    assert decided(policy, "look", info()) == "allow"


def test_the_strictest_wins_so_that_no_exception_loosens() -> None:
    policy = TierPolicy(system="deny", agents={"agent": TierPolicy(system="allow")})
    assert decided(policy, "act") == "deny"


@pytest.mark.parametrize("field", ["read_only", "workspace", "system", "elevated", "tools"])
def test_an_unknown_decision_is_refused(field: str) -> None:
    value: Any = {"act": "maybe"} if field == "tools" else "maybe"
    with pytest.raises(UsageError, match=r"'maybe'.*'allow', 'ask' or 'deny'"):
        TierPolicy(**{field: value})
    assert "maybe" not in get_args(Decision)


@pytest.mark.anyio
async def test_a_denied_call_is_an_error_that_says_why(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS, policy=TierPolicy(system="deny")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("look")).output == "seen"
        error = (await session.call("act")).error
        assert isinstance(error, PermissionDenied) and error.tier is PermissionTier.SYSTEM
        assert "policy denies" in error.reason and not error.retryable


@pytest.mark.anyio
async def test_a_policy_that_raises_denies(supervise: Any, workspace: Path) -> None:
    class Broken:
        def decide(self, *_: object) -> Decision:
            raise RuntimeError("no configuration")

    async with supervise(TOOLS, policy=Broken()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("look")).error
        assert isinstance(error, PermissionDenied) and "policy failed" in error.reason
        assert "no configuration" not in error.message


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [None, "Deny", "denied", "", "Allow", True, ["allow"]], ids=repr)
async def test_whatever_a_policy_says_but_allow_or_ask_denies(answer: Any, supervise: Any, workspace: Path) -> None:
    class Odd:
        def decide(self, *_: object) -> Any:
            return answer

    async with supervise(TOOLS, policy=Odd()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("look")).error
        assert isinstance(error, PermissionDenied) and "policy denies" in error.reason


@pytest.mark.anyio
async def test_a_policy_gives_no_capability(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS, policy=TierPolicy(tools={"change": "allow"})) as supervisor:
        worker = await supervisor.open_session("worker", workspace=workspace)
        error = (await worker.call("change")).error
        assert isinstance(error, PermissionDenied) and error.missing == (Capability.WRITE,)
