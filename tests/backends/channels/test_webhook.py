"""The channel that posts: its events, its credential, and its answers."""

from typing import Any

import pytest
from tests.backends.channels.conversation import request
from tests.loopback import Asked, said, serving

from toolcell import Approved, Approver, Credential, Denied, UsageError, WebhookChannel
from toolcell.backends import Refused, Unreachable

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


async def test_a_webhook_posts_each_operation_with_its_credential() -> None:
    with serving(lambda asked: said({"id": "m-7"})) as service:
        channel = WebhookChannel(service.url("/hook"), credential=Credential(value="hook-secret-1"), private=True)
        assert await channel.send("hi", sender="agent/s1") == "m-7"
        assert await channel.send_to("#ops", "hi", sender="agent/s1") == "m-7"
        assert await channel.upload("a.bin", b"\0\1", media_type="x/y", sender="agent/s1") == "m-7"
        await channel.react("m-7", "👍", sender="agent/s1")
        await channel.edit("m-7", "ho", sender="agent/s1")
        await channel.pin("m-7", sender="agent/s1")
        asked = service.asked
    assert {(each.method, each.path, each.headers["authorization"]) for each in asked} == {
        ("POST", "/hook", "hook-secret-1")
    }
    assert [each.json["event"] for each in asked] == ["message", "message", "file", "reaction", "edit", "pin"]
    first = asked[0].json
    assert (first["text"], first["sender"], asked[2].json["data"]) == ("hi", "agent/s1", "AAE=")
    assert len({each.json["id"] for each in asked}) == 6
    assert "hook-secret" not in repr(channel)


async def test_a_webhook_answers_questions_and_approvals() -> None:
    def answering(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        event = asked.json
        if event["event"] == "question":
            return said({"answer": event["options"][1]})
        return said({"approved": event["request"]["arguments"]["amount"] < 10, "message": "too much"})

    with serving(answering) as service:
        channel = WebhookChannel(service.url(), approves=True, private=True)
        assert await channel.ask("?", options=("a", "b"), sender="x") == "b"
        assert isinstance(channel, Approver) and await channel.approve(request()) == Approved()
    assert not isinstance(WebhookChannel("https://hook.example.org/"), Approver)


@pytest.mark.parametrize("answer", [said({}), said(b"no json"), said({"answer": 3}), said({"answer": "c"}), said([])])
async def test_a_webhook_without_an_answer_is_no_answer(answer: Any) -> None:
    with serving(lambda asked: answer) as service:
        channel = WebhookChannel(service.url(), approves=True, private=True)
        with pytest.raises(Unreachable, match="Nobody answered"):
            await channel.ask("?", options=("a", "b"), sender="x")
        assert await channel.approve(request()) == Denied()


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_a_webhook_that_fails_has_sent_nothing(status: int) -> None:
    with serving(lambda asked: said({}, status, Location="/elsewhere")) as service:
        with pytest.raises(Unreachable, match=f"status {status}"):
            await WebhookChannel(service.url(), private=True).send("x", sender="a")
        assert len(service.asked) == 1
    with pytest.raises(Refused, match=r"not public.*WebhookChannel\(\.\.\., private=True\)"):
        await WebhookChannel(service.url()).send("x", sender="a")
    with pytest.raises(UsageError, match="refused"):
        WebhookChannel("ftp://hook.example.org/")
