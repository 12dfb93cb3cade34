"""The channels that ship, one by one: what each shows, and how each is answered."""

import os
import pty
from collections.abc import Awaitable, Callable
from io import StringIO
from typing import Any

import anyio
import pytest
from tests.helpers import until
from tests.loopback import Asked, said, serving

from toolcell import (
    ApprovalRequest,
    Approved,
    Approver,
    CallbackChannel,
    ConsoleChannel,
    Credential,
    Denied,
    InMemoryChannel,
    PermissionTier,
    Preview,
    SessionKind,
    UsageError,
    WebhookChannel,
)
from toolcell.backends import Refused, Unreachable

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


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


# -- console ----------------------------------------------------------------------------------------------------------


class Terminal:
    """A pseudo-terminal at whose other end the test types."""

    def __init__(self) -> None:
        self.typist, inner = pty.openpty()
        self.input = os.fdopen(inner)
        self.output = StringIO()
        self.channel = ConsoleChannel(input=self.input, output=self.output)

    async def type(self, text: str, *, after: str) -> None:
        await until(lambda: self.output.getvalue().endswith(after))
        os.write(self.typist, text.encode())

    def close(self) -> None:
        self.input.close()
        os.close(self.typist)


@pytest.fixture
def terminal() -> Any:
    terminal = Terminal()
    yield terminal
    terminal.close()


async def test_the_console_prints_messages_without_control_characters(terminal: Terminal) -> None:
    await terminal.channel.send("one\n\x1b[2Jtwo", sender="agent/s1")
    await terminal.channel.upload("a.png", b"xyz", media_type="image/png", sender="agent/s1")
    assert terminal.output.getvalue() == (
        "agent/s1: one\n    \\x1b[2Jtwo\nagent/s1 has a file: a.png (image/png, 3 bytes)\n"
    )


async def test_the_console_asks_until_an_option_is_chosen(terminal: Terminal) -> None:
    async def act() -> None:
        await terminal.type("maybe\n", after="> ")
        await terminal.type("no\n", after="Answer with one of yes, no.\n> ")

    channel = terminal.channel
    assert await while_asking(lambda: channel.ask("Go on?", options=("yes", "no"), sender="a"), act) == "no"


@pytest.mark.parametrize(("typed", "approves"), [("y\n", True), ("YES\n", True), ("\n", False), ("nay\n", False)])
async def test_the_console_approves_only_a_yes(terminal: Terminal, typed: str, approves: bool) -> None:
    async def act() -> None:
        await terminal.type(typed, after="[y/N] ")

    answer = await while_asking(lambda: terminal.channel.approve(request()), act)
    assert isinstance(answer, Approved if approves else Denied)
    shown = terminal.output.getvalue()
    for part in ("agent/s1 wants to call pay", "Pay 5", "+b", "amount = 5", "it is elevated"):
        assert part in shown
    assert "\x1b" not in shown


async def test_what_was_typed_before_a_question_does_not_answer_it(terminal: Terminal) -> None:
    os.write(terminal.typist, b"y\ny\n")
    await anyio.sleep(0.05)
    with anyio.move_on_after(0.4):
        await terminal.channel.approve(request())
        pytest.fail("the question was answered by an older line")

    async def act() -> None:
        await until(lambda: terminal.output.getvalue().count("[y/N] ") == 2)
        os.write(terminal.typist, b"n\n")

    assert isinstance(await while_asking(lambda: terminal.channel.approve(request()), act), Denied)


async def test_the_end_of_the_input_approves_nothing() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading) as input:
        channel = ConsoleChannel(input=input, output=StringIO())
        assert isinstance(await channel.approve(request()), Denied)
        with pytest.raises(Unreachable, match="Nobody is there"):
            await channel.ask("?", options=(), sender="a")


# -- callback ---------------------------------------------------------------------------------------------------------


async def test_a_callback_channel_can_do_what_it_has_functions_for() -> None:
    sent: list[tuple[str, str]] = []

    async def ask(question: str, *, options: tuple[str, ...], sender: str) -> str:
        return options[0]

    channel = CallbackChannel(lambda text, sender: sent.append((text, sender)), name="desk", ask=ask)
    assert await channel.send("hi", sender="a") is None and sent == [("hi", "a")]
    assert await channel.ask("?", options=("x",), sender="a") == "x"  # type: ignore[attr-defined]
    assert not hasattr(channel, "pin") and not isinstance(channel, Approver)
    approving = CallbackChannel(print, approve=lambda request: Approved())
    assert isinstance(approving, Approver) and await approving.approve(request()) == Approved()


@pytest.mark.parametrize(
    ("functions", "why"), [({"pinn": print}, "has no 'pinn'"), ({"pin": 3}, "pin is not a function")]
)
def test_a_callback_channel_refuses_what_is_no_operation(functions: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        CallbackChannel(print, **functions)


# -- in memory --------------------------------------------------------------------------------------------------------


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
        assert question.request == asked and question.text == "Pay 5"
        channel.answer(question.id, Denied("not today"))

    asked = request()
    assert isinstance(channel, Approver)
    assert await while_asking(lambda: channel.approve(asked), approve) == Denied("not today")
    assert not isinstance(InMemoryChannel(approves=False), Approver)


# -- webhook ----------------------------------------------------------------------------------------------------------


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
    with pytest.raises(Refused, match="not public"):
        await WebhookChannel(service.url()).send("x", sender="a")
    with pytest.raises(UsageError, match="refused"):
        WebhookChannel("ftp://hook.example.org/")
