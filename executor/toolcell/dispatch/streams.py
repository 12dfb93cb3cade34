"""Handle what a call prints, besides the pool's capture: pass it on live, and save a long stream to a file."""

import codecs
import inspect
import logging
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

import anyio

from toolcell.backends.threads import STREAMS, NoThread
from toolcell.pool.run import Capture
from toolcell.wire.budget import Charge
from toolcell.wire.messages import Output
from toolcell_tools.artifact import Artifact
from toolcell_tools.capability import Capability
from toolcell_tools.errors import CutShort
from toolcell_tools.interrupts import Guard, pass_on
from toolcell_tools.result import CapturedOutput, Notice, ToolResult

from .overflow import NewFile
from .services import Caller, Services

_log = logging.getLogger("toolcell.tool")
StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, str], Awaitable[None] | None]
"""Receives what a call prints: `on_output("stdout", "line\\n")`. A plain function runs on the event loop and must
return at once. A slow one must be async."""
NAMES: Final[dict[int, StreamName]] = {1: "stdout", 2: "stderr"}
READ_ON: Final = frozenset({Capability.READ, Capability.WRITE})
"""The capabilities of a session whose long outputs may be saved in its workspace."""
WAITING_BYTES = 256 * 1024  # buffered in memory for a listener that is slower than the call
SLOW_S = 0.1  # of the event loop's time in a plain function; asyncio's debug mode warns after the same time
HEARD_WITHIN_S = 1.0  # how long a result waits for the listener after the call's end
PIECE_BYTES = 256  # memory of a piece besides its text
_Charged = Callable[[int], Charge]


class Streams:
    """The output of one call in a cell. `take` is called on the loop, does not block and does not raise."""

    def __init__(
        self,
        services: Services,
        caller: Caller,
        call_id: str,
        file_bytes: int,
        charged: _Charged,
        on_output: OnOutput | None,
    ) -> None:
        """`charged` counts the bytes that wait to be written. A file has at most `file_bytes` bytes of its stream."""
        self._services = services
        self._workspace = caller.workspace if caller.grants >= READ_ON else None
        self._file_bytes = file_bytes
        self._charged = charged
        self._files: dict[int, StreamFile] = {}
        self._of_commands: set[int] = set()  # the streams to which commands have printed: a model may read them
        self._listener = None if on_output is None else OutputListener(services, call_id, on_output)

    def take(self, output: Output, before: Capture) -> None:
        """Take what the call has printed, after the bytes that were captured before."""
        _seq, stream, skipped, data = output
        if output.seq:
            self._of_commands.add(stream)
        if self._listener is not None:
            self._listener.hear(stream, data, skipped)
        file = self._files.get(stream)
        if file is None and before.total + skipped + len(data) > before.keep_bytes:
            # A model may read the rest of a command's output. What the tool itself prints is for people.
            workspace = self._workspace if stream in self._of_commands else None
            file = self._files[stream] = StreamFile(self._services, workspace, self._file_bytes, self._charged)
            file.feed(before.kept(), 0)
        if file is not None:
            file.feed(data, skipped)

    async def told(self, result: ToolResult) -> ToolResult:
        """The result with the files of its streams, after they are written and the listener has received all output."""
        if self._listener is not None:
            await self._listener.heard()
        artifacts, notices = list(result.artifacts), list(result.notices)
        for number, file in self._files.items():
            name, captured = NAMES[number], result.stdout if number == 1 else result.stderr
            artifact = await file.closed(name)
            if artifact is not None:
                artifacts.append(artifact)
            if number in self._of_commands or isinstance(result.error, CutShort):
                notices.append(_cut(name, captured, artifact, file.in_workspace))
        return result.model_copy(update={"artifacts": artifacts, "notices": tuple(notices)})

    async def given_up(self) -> None:
        """Close the files: nobody waits for the result."""
        for number, file in self._files.items():
            await file.closed(NAMES[number])


def _cut(name: StreamName, captured: CapturedOutput, artifact: Artifact | None, in_workspace: bool) -> Notice:
    """The notice about a stream of which the result has only both ends."""
    total, size = captured.total_bytes, 0 if artifact is None else artifact.size or 0
    said = f"{name} has {total:,} bytes; the result shows the beginning and the end."
    if artifact is None:
        said += " The rest could not be saved."
    else:
        much = "All of it is" if size == total else f"The first {size:,} bytes are"
        where = f"in {artifact.path!r} in the workspace; read on there"
        said += f" {much} {where if in_workspace else 'with the program that runs this session; print less'}."
    return Notice(kind="output_cut", message=said)


class StreamFile:
    """One stream in a file, from its first byte, without gaps. Threads write it, batch by batch."""

    def __init__(self, services: Services, workspace: Path | None, most_bytes: int, charged: _Charged) -> None:
        self._services = services
        self._workspace = workspace
        self._room = most_bytes
        self._charged = charged
        self._waiting: list[tuple[bytes, Charge]] = []
        self._file: NewFile | None = None  # made with the first bytes
        self.in_workspace = False
        self._at_rest = anyio.Event()
        self._at_rest.set()

    def feed(self, data: bytes, skipped: int) -> None:
        if skipped:
            self._room = 0
        data = data[: self._room]
        if not data:
            return
        self._room -= len(data)
        self._waiting.append((data, self._charged(len(data) + PIECE_BYTES)))
        if self._at_rest.is_set():
            self._at_rest = anyio.Event()
            self._services.in_background(self._write_all)

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await STREAMS.run(partial(self._write, [data for data, _charge in batch]))
                finally:
                    for _data, charge in batch:
                        charge.release()
        except (OSError, NoThread) as error:
            _log.warning("what a call printed could not be written to a file: %s", error)
            self._room = 0
        finally:
            for _data, charge in self._waiting:
                charge.release()
            self._waiting.clear()
            self._at_rest.set()

    def _write(self, batch: list[bytes]) -> None:
        file = self._file or self._services.overflow.new_file(self._workspace)
        try:
            for data in batch:
                file.write(data)
        finally:
            if file.size:
                self._file, self.in_workspace = file, file.in_workspace
            else:
                file.discard()

    async def closed(self, kind: str) -> Artifact | None:
        """Close the file. Returns its artifact, or None if nothing could be written or it was closed before."""
        self._room = 0
        await self._at_rest.wait()
        file, self._file = self._file, None
        return None if file is None else file.closed(kind)


class _Piece(NamedTuple):
    stream: int
    skipped: int  # bytes before this piece that are not passed on
    size: int  # in bytes, as it was printed
    text: str

    @property
    def memory(self) -> int:
        """The piece's memory in bytes: up to four for each character, if one character needs so many (PEP 393)."""
        return sys.getsizeof(self.text) + PIECE_BYTES


class OutputListener:
    """Passes a call's output to `on_output`: in order, one piece in each turn of the loop. An exception of `on_output`
    is logged once and otherwise ignored. A plain function that blocks the loop is logged once too. If the function is
    too slow, the oldest buffered pieces are left out and counted."""

    def __init__(self, services: Services, call_id: str, on_output: OnOutput) -> None:
        self._services = services
        self._call_id = call_id
        self._on_output = on_output
        self._decoders = {number: codecs.getincrementaldecoder("utf-8")("replace") for number in NAMES}
        self._waiting: deque[_Piece] = deque()
        self._memory = 0
        self._has_raised = self._is_slow = False  # already logged
        self._left_out = dict.fromkeys(NAMES, 0)  # bytes of a stream before its first buffered piece
        self._at_rest = anyio.Event()
        self._at_rest.set()

    def hear(self, stream: int, data: bytes, skipped: int) -> None:
        """Pass on `data`, which was printed to `stream` after `skipped` missing bytes."""
        self._add(_Piece(stream, skipped, len(data), self._decoders[stream].decode(data)))

    def _add(self, piece: _Piece) -> None:
        self._waiting.append(piece)
        self._memory += piece.memory
        while self._memory > WAITING_BYTES and len(self._waiting) > 1:
            oldest = self._waiting.popleft()
            self._memory -= oldest.memory
            self._left_out[oldest.stream] += oldest.skipped + oldest.size
        if self._at_rest.is_set():
            self._at_rest = anyio.Event()
            self._services.reactor.soon(self._next)

    def _next(self) -> None:
        if not self._waiting:
            self._at_rest.set()
            return
        stream, text = self._taken()
        answer: Awaitable[None] | None = None
        began = time.monotonic()
        try:
            answer = self._on_output(NAMES[stream], text) if text else None
        except BaseException as error:
            pass_on(error)
            self._on_raised()
        self._on_took(time.monotonic() - began)
        if inspect.isawaitable(answer):
            self._services.in_background(self._await, answer)
        else:
            self._services.reactor.soon(self._next)

    def _taken(self) -> tuple[int, str]:
        """The buffered pieces of the stream that is next, up to the next piece of the other stream."""
        stream, texts = self._waiting[0].stream, list[str]()
        left_out, self._left_out[stream] = self._left_out[stream], 0
        while self._waiting and self._waiting[0].stream == stream:
            piece = self._waiting.popleft()
            self._memory -= piece.memory
            left_out += piece.skipped
            if left_out:
                texts.append(f"\n[… {left_out:,} bytes left out …]\n")
            texts.append(piece.text)
            left_out = 0
        return stream, "".join(texts)

    async def _await(self, answer: Awaitable[None]) -> None:
        try:
            async with Guard():
                await answer
        except Exception:
            self._on_raised()
        self._next()

    def _on_raised(self) -> None:
        if not self._has_raised:
            self._has_raised = True
            _log.exception("on_output of call %s raised; what else it raises is not logged", self._call_id)

    def _on_took(self, seconds: float) -> None:
        if seconds > SLOW_S and not self._is_slow:
            self._is_slow = True
            _log.warning(
                "on_output of call %s took %.1f s of the event loop's time, in which no other call goes on. "
                "Make it an async function, or have it only put the text into a queue.",
                self._call_id,
                seconds,
            )

    async def heard(self) -> None:
        """Wait until all output was passed on, at most `HEARD_WITHIN_S` seconds."""
        for number, decoder in self._decoders.items():
            rest = decoder.decode(b"", True)
            if rest or self._left_out[number]:
                self._add(_Piece(number, 0, 0, rest))
        with anyio.move_on_after(HEARD_WITHIN_S):
            await self._at_rest.wait()
