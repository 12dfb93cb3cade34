"""A request for approval, and somebody who acts while a question waits."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from toolcell import ApprovalRequest, PermissionTier, Preview, SessionKind


def request() -> ApprovalRequest:
    return ApprovalRequest(
        tool="pay",
        version="1",
        fingerprint="f",
        arguments={"amount": 5, "to": "\x1b[2Jx"},
        preview=Preview("Pay 5", "to x", "-a\n+b"),
        tier=PermissionTier.ELEVATED,
        reason="it is elevated",
        call_id="c1",
        session_id="s1",
        agent_id="agent",
        session_kind=SessionKind.MAIN,
        expires_at=2_000_000_000.0,
    )


async def while_asking(ask: Callable[[], Awaitable[Any]], act: Callable[[], Awaitable[None]]) -> Any:
    """What `ask` returns, while `act` runs beside it."""
    answers: list[Any] = []

    async def asking() -> None:
        answers.append(await ask())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking)
        await act()
    return answers[0]
