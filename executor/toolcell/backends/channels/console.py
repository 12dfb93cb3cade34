"""Channels that write to a terminal: `ConsoleChannel` also asks questions and approvals of whoever sits there.
`LogChannel`, the default, writes to the log of the program that runs the agent.
"""

import logging
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TextIO

import anyio

from toolcell.backends.protocols import NotConfigured, Unreachable
from toolcell.backends.threads import Threads, Turns
from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell.store.approvals.request import rows_of
from toolcell_tools.preview import printable

__all__ = [
    "ConsoleChannel",
    "LogChannel",
]

_LOOK_MS: Final = 100  # between two looks whether the question is withdrawn
_LINE_BYTES: Final = 64 * 1024
_MARK: Final = "  … "
_PROMPT_CHARS: Final = 76  # at most, of the question below a page


class ConsoleChannel:
    """Writes to `output` (default: standard error) and reads answers from `input` (default: standard input).

    It asks one question at a time. What was typed before a question is thrown away, so it answers none. The end of the
    input denies an approval. Control characters of messages are shown as escapes. A request for approval that is
    longer than the screen is shown in pages, and can be approved only after the last one.
    """

    def __init__(self, *, name: str = "console", input: TextIO | None = None, output: TextIO | None = None) -> None:
        self.name = name
        self._input, self._output = input, output
        self._threads = Threads(4)
        self._turns = Turns(1)

    async def send(self, text: str, *, sender: str) -> None:
        await self._threads.run(partial(self._print, f"{printable(sender)}: {_shown(text)}"))

    async def ask(self, question: str, *, options: Sequence[str], sender: str) -> str:
        choice = f" [{'/'.join(map(printable, options))}]" if options else ""
        prompt = f"{printable(sender)} asks: {_shown(question)}{choice}\n> "
        while True:
            answer = await self._answer(prompt)
            if answer is None:
                raise Unreachable("Nobody is there to answer. Go on without an answer.")
            if not options or answer in options:
                return answer
            prompt = f"Answer with one of {', '.join(map(printable, options))}.\n> "

    async def upload(self, name: str, data: bytes, *, media_type: str, sender: str) -> None:
        what = f"{printable(name)} ({printable(media_type)}, {len(data):,} bytes)"
        await self._threads.run(partial(self._print, f"{printable(sender)} has a file: {what}"))

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        async with self._turns.limiter():
            pages = _pages(request, *self._screen())
            while (page := await self._threads.run(partial(next, pages, None))) is not None:  # a long one takes a while
                shown, question = page
                answer = await self._reply(f"{shown}\n{question} Enter denies. [y/N] ")
                if answer is None or answer.lower() not in ("y", "yes"):
                    return Denied("The person at the console did not approve.")
        return Approved()

    async def _answer(self, prompt: str) -> str | None:
        """The line that answers a prompt, or None at the end of the input."""
        async with self._turns.limiter():
            return await self._reply(prompt)

    async def _reply(self, prompt: str) -> str | None:
        withdrawn = threading.Event()
        try:
            return await self._threads.run(partial(self._asked, prompt, withdrawn.is_set), abandon=True)
        except anyio.get_cancelled_exc_class():
            withdrawn.set()
            raise

    def _screen(self) -> tuple[int, int]:
        """The rows of text that the terminal shows above a prompt, and their width."""
        try:
            found = os.get_terminal_size((sys.stderr if self._output is None else self._output).fileno())
        except (OSError, ValueError):  # no terminal
            found = os.terminal_size((0, 0))
        columns, lines = found.columns or 80, found.lines or 24
        return max(lines - 2 - -(-_PROMPT_CHARS // columns), 1), max(columns - len(_MARK), 8)

    def _asked(self, prompt: str, is_withdrawn: Callable[[], bool]) -> str | None:
        source = sys.stdin if self._input is None else self._input
        fd = source.fileno()
        if os.isatty(fd):
            import termios

            termios.tcflush(fd, termios.TCIFLUSH)
        self._print(prompt, end="")
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        line = bytearray()
        while not is_withdrawn():
            if not poll.poll(_LOOK_MS) or is_withdrawn():
                continue
            piece = os.read(fd, 1)  # a line that is typed later is for the next question
            if not piece:
                return line.decode("utf-8", "replace").strip() if line else None
            if piece == b"\n" or len(line) >= _LINE_BYTES:
                return line.decode("utf-8", "replace").strip()
            line += piece
        return None

    def _print(self, text: str, end: str = "\n") -> None:
        output = sys.stderr if self._output is None else self._output
        output.write(text + end)
        output.flush()


def _pages(request: ApprovalRequest, rows: int, columns: int) -> Iterator[tuple[str, str]]:
    """The pages of a request, each with its question. Only the last question approves; the others ask whether to go on.
    So a request is approved only after the screen has shown all of it."""
    text, shown = request.text, request.fitted(rows, columns).text
    if shown != text:
        found = rows_of(text, columns)
        pages = [found[at : at + rows] for at in range(0, len(found), rows)]
        yield _drawn(shown, rows_of(shown, columns)), f"Approve needs all of it. Show all {len(pages):,} pages?"
        for number, page in enumerate(pages[:-1], 1):
            yield _drawn(text, page), f"Page {number:,} of {len(pages):,}. Show the next?"
        yield _drawn(text, pages[-1]), "Approve?"
    else:
        yield _drawn(text, rows_of(text, columns)), "Approve?"


def _drawn(text: str, rows: list[tuple[int, int]]) -> str:
    """The rows of a text. A row that continues a line begins with a mark, so that it does not pass as a new line."""
    is_new = [begin == 0 or text[begin - 1] == "\n" for begin, _end in rows]
    return "\n".join(f"{'' if new else _MARK}{text[begin:end]}" for new, (begin, end) in zip(is_new, rows, strict=True))


def _shown(text: str) -> str:
    return printable(text, keep="\n\t").replace("\n", "\n    ")


_log = logging.getLogger("toolcell.channel")
_LEVEL = logging.WARNING  # the level that a program without a logging configuration shows on stderr


class LogChannel:
    """Writes each message to the logger `toolcell.channel` at WARNING, which Python shows on stderr by default.

    Raises NotConfigured if no handler takes the message, because then nobody has seen it. `reaches_people` is False: a
    model is told that its message was logged, and not that it was sent.
    """

    reaches_people = False

    async def send(self, text: str, *, sender: str) -> None:
        if not _is_shown():
            raise NotConfigured(
                "Nobody saw the message: no channel is set up in this session, and the log does not show it. "
                "Whoever runs the agent can give the session a channel."
            )
        _log.log(_LEVEL, "%s: %s", printable(sender), printable(text, keep="\n\t").replace("\n", "\n    "))


def _is_shown() -> bool:
    """Whether a handler takes the message: a handler of this logger or of a parent logger, or Python's last resort."""
    if not _log.isEnabledFor(_LEVEL):
        return False
    handlers: list[logging.Handler] = []
    logger: logging.Logger | None = _log
    while logger is not None:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    if not handlers and logging.lastResort is not None:
        handlers = [logging.lastResort]
    return any(each.level <= _LEVEL and not isinstance(each, logging.NullHandler) for each in handlers)
