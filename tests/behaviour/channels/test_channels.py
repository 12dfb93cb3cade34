"""A channel through the public API: operations, levels, tokens, borrowing, and the display of approvals."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import until

from toolcell import (
    Approved,
    Capability,
    ChannelPolicy,
    ExecutionError,
    InMemoryChannel,
    PermissionDenied,
    PermissionTier,
    Profile,
    Session,
    Supervisor,
    ToolContext,
    base_tools,
    tool,
)
from toolcell.testing import ListChannel

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


@tool(needs={"channel"})
def converse(ctx: ToolContext) -> dict[str, Any]:
    """Use every operation of a channel."""
    channel = ctx.require.channel
    sent = channel.send("draft")
    channel.edit(sent.id, "final")
    channel.react(sent.id, "👍")
    channel.pin(sent.id)
    channel.send("elsewhere", to="#ops")
    file = channel.upload("plot.png", b"\x89PNG", "image/png")
    answer = channel.ask("Which?", ["left", "right"])
    read = [message.text for message in channel.read(5)]
    return {
        "answer": answer,
        "read": read,
        "ids": [sent.id, file.id],
        "level": channel.level,
        "left": channel.remaining,
    }


@tool(needs={"channel"})
async def aconverse(ctx: ToolContext) -> list[Any]:
    """Use a channel from an async tool."""
    channel = ctx.require.channel
    status = await channel.astatus()
    sent = await channel.asend("hello")
    return [status.level, list(status.operations), sent.reached, [m.text for m in await channel.aread(1)]]


@tool(needs={"channel"})
def pin(ctx: ToolContext, message_id: str) -> str:
    """Pin a message."""
    ctx.require.channel.pin(message_id)
    return "pinned"


@tool(needs={Capability.CHANNEL})
def upload(ctx: ToolContext, size: int, name: str = "a.bin", media_type: str = "application/octet-stream") -> str:
    """Upload a file of a size."""
    return ctx.require.channel.upload(name, bytes(size), media_type).id


@tool(tier=PermissionTier.ELEVATED)
def destroy() -> str:
    """Destroy something."""
    return "destroyed"


TOOLS = [converse, aconverse, pin, upload, destroy, *base_tools()]


async def opened(shared: Supervisor, workspace: Path, channel: Any, **policy: Any) -> Session:
    profile = Profile.for_kind("main").replace(channel=ChannelPolicy(**policy))
    return await shared.open_session("main", workspace=workspace, channel=channel, profile=profile)


async def test_every_operation_reaches_the_channel(shared: Supervisor, workspace: Path) -> None:
    channel = InMemoryChannel()
    session = await opened(shared, workspace, channel)

    async def answer() -> None:
        await until(lambda: channel.questions)
        (question,) = channel.questions.values()
        assert (question.text, question.options, question.sender) == (
            "Which?",
            ("left", "right"),
            f"agent/{session.id}",
        )
        channel.answer(question.id, "right")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        result = await session.call("converse")
    assert result.error is None
    assert result.output["answer"] == "right" and result.output["read"] == ["final", "plot.png"]
    assert (result.output["level"], result.output["left"]) == ("broadcast", 53)
    first, elsewhere, file = channel.messages
    assert (first.text, first.is_pinned, first.reactions) == ("final", True, ["👍"])
    assert (elsewhere.place, file.data, result.output["ids"]) == ("#ops", b"\x89PNG", [first.id, file.id])


async def test_an_async_tool_and_a_small_channel(shared: Supervisor, workspace: Path) -> None:
    channel = InMemoryChannel()
    session = await opened(shared, workspace, channel, level="reply")
    level, operations, reached, read = (await session.call("aconverse")).output
    assert (level, reached, read) == ("reply", True, ["hello"])
    assert operations == ["ask", "edit", "react", "read", "send", "status", "upload"]
    small = await opened(shared, workspace, ListChannel())
    unknown = await session.call("pin", {"message_id": ""})
    assert isinstance(unknown.error, ExecutionError) and "gave the message no id" in unknown.error.message
    result = await small.call("pin", {"message_id": "m1"})
    assert isinstance(result.error, ExecutionError)
    assert result.error.message == "This channel cannot 'pin'. It can: send, status."


async def test_the_level_and_the_tokens_hold_for_whatever_a_cell_asks(shared: Supervisor, workspace: Path) -> None:
    channel = InMemoryChannel()
    asking = await opened(shared, workspace, channel, level="ask")
    refused = await asking.call("message", {"text": "hi"})
    assert isinstance(refused.error, PermissionDenied) and "level 'ask'" in refused.error.reason
    silent = await opened(shared, workspace, channel, level="none")
    refused = await silent.call("message", {"text": "hi"})
    assert isinstance(refused.error, PermissionDenied) and "channel" in refused.error.missing
    assert "message" not in {declared.name for declared in await silent.tools()}
    few = await opened(shared, workspace, channel, burst=2, per_s=0.001)
    for _ in range(2):
        assert (await few.call("message", {"text": "hi"})).output["sent"] is True
    often = await few.call("message", {"text": "hi"})
    assert isinstance(often.error, ExecutionError) and "possible in" in often.error.message
    assert often.error.data["retry_after_s"] > 900
    assert len(channel.messages) == 2


async def test_a_file_of_the_documented_size_is_uploaded_and_a_larger_one_is_not(
    shared: Supervisor, workspace: Path
) -> None:
    channel = InMemoryChannel()
    session = await opened(shared, workspace, channel)
    most = 4 * 1024 * 1024  # docs/channels.md
    assert (await session.call("upload", {"size": most})).error is None
    for size in (most + 1, 2 * most):
        larger = await session.call("upload", {"size": size})
        assert isinstance(larger.error, ExecutionError) and "at most 4," in larger.error.message
    assert [len(message.data or b"") for message in channel.messages] == [most]


@pytest.mark.parametrize(
    "name", ["../a.txt", "/etc/passwd", "a\\b.txt", "..", "a\nb.txt", "a\0.txt", "\x1b[2J.txt", "a\u202eb"]
)
async def test_an_uploaded_file_has_the_name_of_a_file(shared: Supervisor, workspace: Path, name: str) -> None:
    channel = InMemoryChannel()
    session = await opened(shared, workspace, channel)
    refused = await session.call("upload", {"size": 1, "name": name})
    assert isinstance(refused.error, ExecutionError) and "the name of a file" in refused.error.message
    wrong = await session.call("upload", {"size": 1, "media_type": "text/plain\r\nX-Header: 1"})
    assert isinstance(wrong.error, ExecutionError) and "media type" in wrong.error.message
    assert (
        await session.call("upload", {"size": 1, "name": "Zürich, März.txt", "media_type": "text/plain"})
    ).error is None
    assert [message.text for message in channel.messages] == ["Zürich, März.txt"]


async def test_a_branch_borrows_the_channel_under_its_own_policy_and_its_parents_tokens(
    shared: Supervisor, workspace: Path
) -> None:
    channel = InMemoryChannel()
    main = await opened(shared, workspace, channel, burst=3, per_s=0.001)
    branch = await main.open_child(
        "branch", profile=Profile.for_kind("branch").replace(channel=ChannelPolicy(level="reply", burst=2, per_s=0.001))
    )
    wide = await main.open_child("branch", profile=Profile.for_kind("branch"))
    assert branch.profile.channel.level == "reply" and wide.profile.channel.burst == 3
    assert isinstance((await branch.call("pin", {"message_id": "m1"})).error, PermissionDenied)
    for text in ("one", "two"):
        assert (await branch.call("message", {"text": text})).is_error is False
    assert (await branch.call("message", {"text": "three"})).is_error
    assert (await wide.call("message", {"text": "three"})).is_error is False
    assert (await main.call("message", {"text": "four"})).is_error
    assert [message.text for message in channel.messages] == ["one", "two", "three"]


async def test_an_approval_is_shown_on_the_channel_and_answered_by_the_nearest_that_can(
    shared: Supervisor, workspace: Path
) -> None:
    able, unable = InMemoryChannel(), ListChannel()
    main = await opened(shared, workspace, able)
    branch = await main.open_child("branch", channel=unable)

    async def approve() -> None:
        await until(lambda: able.questions)
        (question,) = able.questions.values()
        assert question.request is not None and question.request.session_id == branch.id
        able.answer(question.id, Approved())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(approve)
        result = await branch.call("destroy")
    assert result.output == "destroyed"
    await until(lambda: unable.sent)
    assert "Approval is asked, and is not given here: " in unable.sent[0][0]


async def test_an_approval_by_the_supervisors_approver_is_shown_on_the_channel_too(
    supervise: Any, workspace: Path
) -> None:
    class Yes:
        async def approve(self, request: Any) -> Approved:
            return Approved()

    channel = ListChannel()
    async with supervise([destroy], approver=Yes(), channel=channel) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("destroy")).output == "destroyed"
        await until(lambda: channel.sent)
    assert "Approval is asked" in channel.sent[0][0]
