"""`read`: show a window of numbered lines of a text file, or an image."""

from collections.abc import Iterator
from typing import Annotated, BinaryIO

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.options import Annotations
from toolcell_tools.preview import counted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField
from toolcell_tools.text_file import BINARY, BOM, SNIFFED_BYTES, flaw_of_text

from .images import IMAGE_BYTES, IMAGE_SIDE, flaw_of, image_block, media_type_of

__all__ = ["read"]

LINE_LIMIT = 2_000
LINE_BYTES = 8_000  # a longer line is cut, and a note counts the bytes left out
WINDOW_BYTES = 60_000  # less than ToolResult.for_model keeps
_CHUNK = 1_048_576


@tool(needs={Capability.READ}, annotations=Annotations(title="Read a file", idempotent=True))
def read(
    ctx: ToolContext,
    path: Annotated[str, LazyField("The file, relative to the workspace.")],
    offset: Annotated[int, LazyField("The first line to show, counted from 1.", ge=1)] = 1,
    limit: Annotated[int, LazyField("How many lines to show at most.", ge=1)] = LINE_LIMIT,
) -> Answer:
    """Read a text file or an image. Of a text, shows a window of lines, each after its number and a tab, and says what
    is left. Shows PNG, JPEG, GIF and WebP images."""
    _refuse_directory(ctx, path)
    with ctx.workspace.open(path) as file:
        start = file.read(SNIFFED_BYTES)
        media_type = media_type_of(start)
        if media_type:
            return _image(path, start + file.read(IMAGE_BYTES), media_type)
        _refuse_binary(file, start, path)
        shown, total = _window(file, offset, limit)
    if offset > total and not (total == 0 and offset == 1):
        raise ToolFailure(f"{path!r} has {counted(total, 'line')}; offset {offset:,} is past its end")
    last = offset + len(shown) - 1
    output: dict[str, object] = {
        "path": path,
        "content": "\n".join(shown),
        "start_line": offset,
        "end_line": last,
        "total_lines": total,
    }
    if any("\ufffd" in line for line in shown):
        output["note"] = "\ufffd stands for a byte that is not UTF-8, or for itself. A change keeps such bytes."
    if last < total:
        output["more"] = f"{counted(total - last, 'line is', 'lines are')} left; read on with offset={last + 1}"
    lines = f"lines {offset:,} to {last:,} of {total:,}" if shown else "it is empty"
    return Answer(output=output, display=f"Read {path}: {lines}", text_member="content")


def _refuse_directory(ctx: ToolContext, path: str) -> None:
    if ctx.workspace.resolve(path).is_dir():
        entries = ctx.workspace.list(path)
        names = [entry.path + "/" * (entry.kind == "directory") for entry in entries[:50]]
        more = f" and {len(entries) - 50:,} more" if len(entries) > 50 else ""
        raise ToolFailure(
            f"{path!r} is a directory; read one of its files: {', '.join(names) or 'there are none'}{more}",
            {"entries": names, "total": len(entries)},
        )


def _image(path: str, raw: bytes, media_type: str) -> Answer:
    if len(raw) > IMAGE_BYTES:
        raise ToolFailure(
            f"{path!r} is an image of more than {IMAGE_BYTES:,} bytes; make a smaller copy, and read that"
        )
    flaw = flaw_of(raw, media_type)
    if flaw:
        raise ToolFailure(
            f"{path!r} is an image that {flaw}; read shows whole images of at most {IMAGE_SIDE:,} pixels on a side"
        )
    output = {"path": path, "media_type": media_type, "bytes": len(raw)}
    return Answer(output, f"Read {path}: an image of {len(raw):,} bytes", content=[image_block(raw, media_type)])


def _refuse_binary(file: BinaryIO, start: bytes, path: str) -> None:
    flaw = flaw_of_text(start)
    if flaw == BINARY:
        size = file.seek(0, 2)
        raise ToolFailure(f"{path!r} is a binary file of {size:,} bytes; read shows text and images only")
    if flaw:
        raise ToolFailure(f"{path!r} is {flaw}")
    file.seek(0)


def _window(file: BinaryIO, offset: int, limit: int) -> tuple[list[str], int]:
    """The numbered lines from `offset`, and how many lines the file has. Memory is bounded, however long a line is."""
    shown: list[str] = []
    room = WINDOW_BYTES
    open_window = True
    number = 0
    for start, length in _lines(file):
        number += 1
        if not open_window or number < offset:
            continue
        line = _line(number, start, length)
        room -= len(line.encode()) + 1
        # The first line is always shown, and its size is bounded, so each read makes progress.
        if len(shown) == limit or (room < 0 and shown):
            open_window = False
            continue
        shown.append(line)
    return shown, number


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """For each line, its first LINE_BYTES bytes and its length in bytes, both without the line's end."""
    while start := file.readline(LINE_BYTES + 2):
        length = len(start)
        ended = start.endswith(b"\n")
        while not ended:
            rest = file.readline(_CHUNK)
            if not rest:
                break
            length += len(rest)
            ended = rest.endswith(b"\n")
        if start.endswith(b"\n"):
            start = start[:-2] if start.endswith(b"\r\n") else start[:-1]
        yield start[:LINE_BYTES], length - ended


def _line(number: int, start: bytes, length: int) -> str:
    text = start.decode(errors="replace")
    if number == 1:
        text = text.removeprefix(BOM)
    cut = f" [… {length - LINE_BYTES:,} bytes of this line left out …]" if length > LINE_BYTES + 1 else ""
    return f"{number}\t{text}{cut}"
