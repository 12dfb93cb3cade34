"""The channel on a terminal: what it shows, and what answers a question."""

import os
import pty
import re
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any

import anyio
import pytest
from tests.backends.channels.conversation import request, while_asking
from tests.helpers import until

from toolcell import Approved, ConsoleChannel, Denied
from toolcell.backends import Unreachable

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


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
    assert shown.endswith("Approve? Enter denies. [y/N] ")
    assert "\x1b" not in shown


async def test_blanks_push_nothing_off_the_screen(terminal: Terminal) -> None:
    asked = replace(request(), arguments={"command": "git status" + " " * 2500 + "; echo PWNED"})

    async def act() -> None:
        await terminal.type("y\n", after="Approve? Enter denies. [y/N] ")

    assert isinstance(await while_asking(lambda: terminal.channel.approve(asked), act), Approved)
    assert r'command = "git status\{2,500 spaces}; echo PWNED"' in terminal.output.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [{"text": "x" * 5_000 + "PWNED"}, {f"m{number}": number for number in range(99)}, {"words": ["a"] * 10_000}],
    ids=["a long text", "many arguments", "a long list"],
)
async def test_a_request_that_no_screen_holds_is_approved_after_its_last_page_only(
    terminal: Terminal, arguments: dict[str, Any]
) -> None:
    asked = replace(request(), arguments=arguments)

    async def answered(*answers: str) -> tuple[Approved | Denied, list[str]]:
        """The answer to the request, and what is shown before each prompt."""
        prompt, before = "[y/N] ", len(terminal.output.getvalue())

        async def act() -> None:
            for number, answer in enumerate(answers, 1):
                await until(partial(lambda n: terminal.output.getvalue()[before:].count(prompt) == n, number))
                os.write(terminal.typist, answer.encode())

        answer = await while_asking(lambda: terminal.channel.approve(asked), act)
        return answer, terminal.output.getvalue()[before:].split(prompt)[:-1]

    denied, (first,) = await answered("n\n")
    assert isinstance(denied, Denied) and re.search(r"\[… [\d,]+ characters …\]", first) and "Approve?" not in first
    pages = int(first.split("Show all ")[1].split()[0].replace(",", ""))
    denied, shown = await answered(*["y\n"] * pages, "\n")
    assert isinstance(denied, Denied) and len(shown) == pages + 1
    approved, shown = await answered(*["y\n"] * (pages + 1))
    assert approved == Approved()
    assert not any("Approve?" in page for page in shown[:-1]) and shown[-1].endswith("Approve? Enter denies. ")
    whole = "".join(line.removeprefix("  … ") for page in shown[1:] for line in page.splitlines()[:-1])
    assert whole.replace("Approve? ", "") == asked.text.replace("\n", "")
    assert all(len(line) <= 80 for line in shown[1].splitlines()) and len(shown[1].splitlines()) <= 24


async def test_what_was_typed_before_a_question_does_not_answer_it(terminal: Terminal) -> None:
    os.write(terminal.typist, b"y\ny\n")
    with anyio.move_on_after(1.0):
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


@pytest.mark.parametrize("size", [(20, 10), (24, 9), (40, 11), (80, 5), (80, 24), (0, 0)])
async def test_each_page_of_a_request_and_its_question_fit_on_the_screen(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(terminal.output, "fileno", lambda: 1)
    monkeypatch.setattr(os, "get_terminal_size", lambda _fd: os.terminal_size(size))
    columns, lines = size[0] or 80, size[1] or 24
    shown: list[str] = []

    async def reply(prompt: str) -> str:
        shown.append(prompt)
        return "y"

    monkeypatch.setattr(terminal.channel, "_reply", reply)
    asked = replace(request(), arguments={"command": "echo one two three " * 90 + "; echo PWNED"})
    assert await terminal.channel.approve(asked) == Approved()
    assert "PWNED" in shown[-1]
    assert max(sum(-(-max(1, len(row)) // columns) for row in page.split("\n")) for page in shown) <= lines
