"""The explanation of a call is what would be decided. `tests/behaviour/settings/test_policy.py` has what is allowed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell import (
    Explanation,
    PermissionDenied,
    SessionInfo,
    Supervisor,
    ToolCall,
    ToolDeclaration,
    host_tool,
)
from toolcell.rules.policy import Decision

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough: nothing here waits in a way of its own."""
    return "asyncio"


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


class Failing:
    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
        raise KeyError("amount")


class Mute:
    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
        return "deny"

    def explain(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Explanation:
        raise RuntimeError("no words")


def fails(arguments: object) -> bool:
    raise KeyError("amount")


@pytest.mark.parametrize(
    ("options", "condition", "rule"),
    [
        ({"policy": Failing()}, False, "the policy failed"),
        ({}, fails, "the policy failed"),
        ({"policy": Mute()}, False, "Mute"),
    ],
    ids=["policy", "condition", "explanation"],
)
async def test_what_fails_is_explained_as_the_denial_that_it_is(
    supervise: Callable[..., Supervisor], workspace: Path, options: dict[str, Any], condition: Any, rule: str
) -> None:
    async with supervise([host_tool(pay, requires_approval=condition)], **options) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert await session.explain("pay", {"amount": 5}) == Explanation("deny", rule)
        assert isinstance((await session.call("pay", {"amount": 5})).error, PermissionDenied)
