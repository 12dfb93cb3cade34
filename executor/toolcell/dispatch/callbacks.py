"""Pass what a tool reports and prints, while its call runs, to the caller, the log and the journal."""

import codecs
import inspect
import logging
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import Context, copy_context
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

import anyio

from toolcell.pool.run import Capture
from toolcell.rules.redaction import Redaction
from toolcell.sessions.supervisor_lifetime import WITHIN
from toolcell.store.journal import Record
from toolcell.wire.budget import Charge
from toolcell.wire.messages import Output
from toolcell_tools.artifact import Artifact
from toolcell_tools.errors import CutShort
from toolcell_tools.interrupts import Guard, pass_on
from toolcell_tools.preview import printable
from toolcell_tools.result import CapturedOutput, Notice, ToolResult

from .call_context import CallContext, OnOutput, StreamName
from .overflow import PIECE_BYTES, StreamFile
from .services import Caller, Services

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("toolcell.tool")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
NAMES: Final[dict[int, StreamName]] = {1: "stdout", 2: "stderr"}
WAITING_BYTES = 256 * 1024  # buffered in memory for a listener that is slower than the call
SLOW_S = 0.1  # of the event loop's time in a plain function; asyncio's debug mode warns after the same time
HEARD_WITHIN_S = 1.0  # how long a result waits for the listener after the call's end


def in_callers_context(callback: Callable[P, T]) -> Callable[P, T]:
    """The callback, run with the context variables of the current task: a notebook shows its output below the cell that
    made the call. A coroutine that it returns keeps them over each `await`."""
    context = copy_context()

    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        answer = context.run(callback, *args, **kwargs)
        return cast("T", _InContext(context, answer)) if inspect.isawaitable(answer) else answer

    return called


class _InContext:
    """An awaitable, each step of which runs in a context."""

    def __init__(self, context: Context, answer: Awaitable[None]) -> None:
        self._context = context
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, None]:
        self._context.run(WITHIN.set, WITHIN.get())  # of the task that awaits, not of the caller
        steps = self._context.run(self._answer.__await__)
        step: Callable[..., Any] = steps.send
        value: object = None
        while True:
            try:
                wanted = self._context.run(step, value)
            except StopIteration:
                return
            try:
                step, value = steps.send, (yield wanted)
            except BaseException as error:
                step, value = steps.throw, error


def tell_progress(
    context: CallContext, message: str, fraction: float | None, charged: Callable[[], Charge] | None = None
) -> None:
    """Report a call's progress to its caller. An exception of the callback is only logged. Queued reports are
    `charged`."""
    on_progress, call_id = context.on_progress, context.call_id
    if on_progress is None:
        return
    try:
        answer = on_progress(message, fraction)
    except BaseException as error:
        pass_on(error)
        _log.exception("on_progress of call %s raised", call_id)
        return
    if inspect.isawaitable(answer):
        context.services.in_background(_awaited, call_id, answer, None if charged is None else charged())


async def _awaited(call_id: str, answer: Awaitable[None], charge: Charge | None) -> None:
    try:
        async with Guard():
            await answer
    except Exception:
        _log.exception("on_progress of call %s raised", call_id)
    finally:
        if charge is not None:
            charge.release()


def tell_log(
    context: CallContext, tool: str, level: str, message: str, fields: Mapping[str, Any], secrets: Redaction | None
) -> None:
    """Write a tool's log entry without the secrets to the log and the journal, and pass it to the caller as it is."""
    said: dict[str, Any] = {"message": message, "fields": dict(fields)}
    if secrets is not None:
        said = secrets.value(said)
    line = printable(said["message"])  # a tool must not forge other log lines
    _log.log(_LEVELS.get(level, logging.INFO), "%s: %s", tool, line, extra={"toolcell": said["fields"]})
    data = {"tool": tool, "level": level, **said}
    context.services.journal.write(Record("log", context.caller.id, context.call_id, data))
    if context.on_log is not None:
        try:
            context.on_log(level, message, fields)
        except BaseException as error:
            pass_on(error)
            _log.exception("on_log of call %s raised", context.call_id)


class Streams:
    """The output of one call in a cell. `take` is called on the loop, does not block and does not raise."""

    def __init__(
        self,
        services: Services,
        caller: Caller,
        call_id: str,
        file_bytes: int,
        charged: Callable[[int], Charge],
        on_output: OnOutput | None,
    ) -> None:
        """`charged` counts the bytes that wait to be written. A file has at most `file_bytes` bytes of its stream."""
        self._services = services
        self._workspace = caller.readable_workspace
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
            file = self._files[stream] = StreamFile(
                self._services.overflow, self._services.in_background, workspace, self._file_bytes, self._charged
            )
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
