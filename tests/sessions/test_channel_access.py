"""A session's access to its channel: the level, the tokens, and what the channel itself can do."""

import pytest

from toolcell import ChannelPolicy, InMemoryChannel, LogChannel
from toolcell.backends import NotConfigured, OutsideRules, Refused
from toolcell.sessions.channel_access import ChannelAccess, TooOften
from toolcell.testing import ListChannel
from toolcell_tools import SentMessage

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


def access(policy: ChannelPolicy | None = None, **options: object) -> ChannelAccess:
    return ChannelAccess(InMemoryChannel(), policy or ChannelPolicy(), **options)  # type: ignore[arg-type]


async def test_a_level_refuses_what_is_above_it_and_names_the_level_that_allows_it() -> None:
    reply = access(ChannelPolicy(level="reply"))
    sent = await reply.send("hi", sender="a")
    with pytest.raises(OutsideRules, match=r"level 'reply'.*'pin'.*ChannelPolicy\(level='broadcast'\)"):
        await reply.perform("pin", sent.id, sender="a")
    with pytest.raises(OutsideRules):
        await reply.send("hi", sender="a", to="#all")
    ask = access(ChannelPolicy(level="ask"))
    with pytest.raises(OutsideRules, match="level='reply'"):
        await ask.send("hi", sender="a")
    assert await ask.read(5) == []
    assert ask.status.operations == ("ask", "read", "status")


async def test_tokens_are_taken_and_come_back() -> None:
    now = 0.0
    spoken = access(ChannelPolicy(burst=2, per_s=0.5), now=lambda: now)
    for left in (1, 0):
        await spoken.send("x", sender="a")
        assert spoken.status.remaining == left
    with pytest.raises(TooOften, match=r"2 operations at once and then 0\.5 a second.*in 2 s") as caught:
        await spoken.send("x", sender="a")
    assert caught.value.retry_after_s == spoken.status.wait_s == 2.0
    assert len(await spoken.read(10)) == 2
    now = 2.0
    await spoken.send("x", sender="a")


async def test_a_borrower_takes_from_its_own_bucket_and_from_its_parents() -> None:
    now = 0.0
    parent = ChannelAccess(InMemoryChannel(), ChannelPolicy(burst=3), now=lambda: now)
    child = ChannelAccess(parent.channel, ChannelPolicy(level="reply", burst=2), parent, now=lambda: now)
    other = ChannelAccess(parent.channel, ChannelPolicy(burst=9), parent, now=lambda: now)
    assert (child.status.level, child.status.remaining, other.status.remaining) == ("reply", 2, 3)
    await child.send("1", sender="c")
    await child.send("2", sender="c")
    with pytest.raises(TooOften):
        await child.send("3", sender="c")
    assert (parent.status.remaining, other.status.remaining) == (1, 1)
    await other.send("4", sender="o")
    with pytest.raises(TooOften):
        await parent.send("5", sender="p")


async def test_only_messages_of_the_own_tree_can_be_edited() -> None:
    channel = InMemoryChannel()
    parent = ChannelAccess(channel, ChannelPolicy())
    child = ChannelAccess(channel, ChannelPolicy(), parent)
    persons, own = channel.say("hello"), await child.send("draft", sender="c")
    with pytest.raises(Refused, match="not one of the last"):
        await child.edit(persons, "changed", sender="c")
    await parent.edit(own.id, "final", sender="p")
    assert [message.text for message in channel.messages] == ["hello", "final"]
    await child.perform("react", persons, "👍", sender="c")
    assert channel.messages[0].reactions == ["👍"]


async def test_an_operation_that_the_channel_lacks_takes_no_token() -> None:
    spoken = ChannelAccess(ListChannel(), ChannelPolicy())
    with pytest.raises(NotConfigured, match=r"cannot 'ask'\. It can: send, status"):
        await spoken.ask("?", [], sender="a")
    assert spoken.status.remaining == 60


async def test_a_message_to_the_log_has_not_reached_anybody() -> None:
    assert await ChannelAccess(LogChannel(), ChannelPolicy()).send("x", sender="a") == SentMessage("", reached=False)
    assert (await access().send("x", sender="a")).reached


@pytest.mark.parametrize(("wait_s", "said"), [(0.04, "0.04 s"), (9.04, "9 s"), (99.9, "100 s"), (1234.5, "1,234 s")])
async def test_the_wait_for_a_token_is_said_in_seconds(wait_s: float, said: str) -> None:
    assert f"is possible in {said}." in str(TooOften(ChannelPolicy(), wait_s))
