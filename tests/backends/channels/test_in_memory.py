"""The channel in memory: what it keeps, and how the program answers."""

import pytest
from tests.backends.channels.conversation import request, while_asking
from tests.helpers import until

from toolcell import Approved, Approver, Denied, InMemoryChannel, UsageError
from toolcell.backends import Refused

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


async def test_a_channel_in_memory_keeps_everything_that_happens_to_a_message() -> None:
    changes: list[int] = []
    channel = InMemoryChannel(on_change=lambda: changes.append(1))
    id = await channel.send("one", sender="a")
    await channel.react(id, "👍", sender="a")
    await channel.edit(id, "two", sender="a")
    await channel.pin(id, sender="a")
    await channel.send_to("#ops", "elsewhere", sender="a")
    file = await channel.upload("a.txt", b"data", media_type="text/plain", sender="a")
    first, there, uploaded = channel.messages
    assert (first.text, first.reactions, first.is_pinned, there.place) == ("two", ["👍"], True, "#ops")
    assert (uploaded.id, uploaded.data, uploaded.media_type) == (file, b"data", "text/plain")
    assert [message.text for message in await channel.read(limit=5)] == ["two", "a.txt"]
    assert len(changes) == 6
    with pytest.raises(Refused, match="no message 'm99'"):
        await channel.edit("m99", "x", sender="a")


async def test_a_channel_in_memory_is_answered_by_the_program() -> None:
    channel = InMemoryChannel()

    async def answer() -> None:
        await until(lambda: channel.questions)
        (question,) = channel.questions.values()
        for wrong in (Approved(), "neither"):
            with pytest.raises(UsageError, match="The answer to"):
                channel.answer(question.id, wrong)
        channel.answer(question.id, "left")

    assert await while_asking(lambda: channel.ask("?", options=("left", "right"), sender="a"), answer) == "left"
    assert not channel.questions
    with pytest.raises(UsageError, match="There is no question"):
        channel.answer("q1", "x")

    async def approve() -> None:
        await until(lambda: channel.questions)
        (question,) = channel.questions.values()
        assert question.request == asked and question.text == asked.text
        channel.answer(question.id, Denied("not today"))

    asked = request()
    assert isinstance(channel, Approver)
    assert await while_asking(lambda: channel.approve(asked), approve) == Denied("not today")
    assert not isinstance(InMemoryChannel(approves=False), Approver)


async def test_a_channel_in_memory_drops_the_oldest_messages_when_they_are_too_large() -> None:
    channel = InMemoryChannel()
    first = await channel.send("one", sender="a")
    for _ in range(200):
        await channel.react(first, "x" * 1000, sender="a")
    assert len(channel.messages[0].reactions) == 100
    for number in range(40):
        await channel.upload(str(number), bytes(4 * 1024 * 1024), media_type="a/b", sender="a")
    assert sum(len(each.data or b"") for each in channel.messages) <= 64 * 1024 * 1024
    assert [each.text for each in channel.messages] == [str(number) for number in range(25, 40)]
