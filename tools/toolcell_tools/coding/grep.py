"""`grep`: find lines by a regular expression."""

import os
from collections.abc import Iterator
from typing import Annotated, Literal

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.options import Annotations
from toolcell_tools.paths import relative
from toolcell_tools.preview import Preview, counted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

from .glob import compiled_glob
from .line_search import Line, Searcher
from .output_schemas import MATCHES
from .walk import WalkedDirectory, shown, walk

__all__ = ["grep"]

MAX_FILE_BYTES = 16 * 1024 * 1024
_FIRST_READ = 65_536
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_REPORT_EVERY = 5_000  # files between two reports of progress


def preview_grep(pattern: str, path: str, include: str | None) -> Preview:
    """The expression, and where it is looked for."""
    return Preview(f"Search {path} for {pattern}" + (f", in files {include}" if include else ""))


@tool(
    needs={Capability.READ},
    preview=preview_grep,
    annotations=Annotations(title="Search files", idempotent=True),
    output_schema=MATCHES,
)
def grep(
    ctx: ToolContext,
    pattern: Annotated[
        str, LazyField("A regular expression of Python's.", min_length=1, examples=[r"def \w+_test\b", "TODO"])
    ],
    path: Annotated[str, LazyField("The directory or file to search, relative to the workspace.")] = ".",
    include: Annotated[
        str | None, LazyField("Only files whose paths match this glob.", examples=["*.py", "src/**/*.ts"])
    ] = None,
    ignore_case: Annotated[bool, LazyField("Take upper and lower case for the same.")] = False,
    literal: Annotated[bool, LazyField("The pattern is text, and no regular expression.")] = False,
    context: Annotated[int, LazyField("How many lines around each line to show.", ge=0, le=20)] = 0,
    show: Annotated[Literal["lines", "files"], LazyField("Show lines, or only files with counts.")] = "lines",
    limit: Annotated[int, LazyField("How many lines or files to show at most.", ge=1, le=1_000)] = 100,
    ignored: Annotated[bool, LazyField("Search what .gitignore leaves out too.")] = False,
) -> Answer:
    """Search text files line by line, without what .gitignore leaves out. Binary files and links are left out."""
    searcher = Searcher.of(pattern, ignore_case=ignore_case, literal=literal, context=context)
    tally = _Tally(limit)
    for name, data in _files(ctx, path, include, tally, everything=ignored):
        if searcher.may_find(data):
            if show == "lines":
                tally.add_lines(name, searcher.lines(data))
            else:
                tally.add_file(name, sum(1 for _ in searcher.lines(data)))
    output: dict[str, object] = {"searched": tally.searched, "matches" if show == "lines" else "files": tally.shown}
    if tally.total > len(tally.shown):
        output["more"] = f"{tally.total - len(tally.shown):,} more {show} match; narrow the pattern, or search below"
    if tally.skipped:
        output["skipped"] = (
            f"{tally.skipped:,} files could not be read or are larger than {MAX_FILE_BYTES // 1_048_576} MiB"
        )
    display = (
        f"Searched {counted(tally.searched, 'file')} for {pattern}: {counted(tally.total, show.removesuffix('s'))}"
    )
    return Answer(output=output, display=display)


class _Tally:
    """What was found so far, of which at most `limit` is shown."""

    def __init__(self, limit: int) -> None:
        self.shown: list[dict[str, object]] = []
        self.searched = 0
        self.skipped = 0
        self.total = 0
        self._limit = limit

    def add_lines(self, path: str, lines: Iterator[Line]) -> None:
        for line in lines:
            self.total += 1
            if len(self.shown) < self._limit:
                found: dict[str, object] = {"path": path, "line": line.number, "text": line.text()}
                self.shown.append(found | line.around())

    def add_file(self, path: str, lines: int) -> None:
        if lines:
            self.total += 1
            if len(self.shown) < self._limit:
                self.shown.append({"path": path, "lines": lines})


def _files(
    ctx: ToolContext, path: str, include: str | None, tally: _Tally, *, everything: bool
) -> Iterator[tuple[str, bytes]]:
    """The searched files that are text: their paths and content. The others are counted."""
    real = ctx.workspace.resolve(path)
    if not real.is_dir():
        with ctx.workspace.open(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise ToolFailure(f"{path!r} is larger than {MAX_FILE_BYTES:,} bytes; search it with a command")
            tally.searched += 1
            yield shown(relative(ctx.workspace.resolve("."), real)), file.read()
        return
    included = None if include is None else compiled_glob(include, ctx.workspace, path).fullmatch
    for directory in walk(ctx.workspace, path, everything=everything):
        names = directory.files
        if included is not None:
            names = [name for name in names if included(f"{directory.path}{name}")]
        before = tally.searched
        yield from _contents(directory, names, tally)
        if tally.searched // _REPORT_EVERY > before // _REPORT_EVERY:
            ctx.progress(f"{counted(tally.searched, 'file')} searched")


def _contents(directory: WalkedDirectory, names: list[str], tally: _Tally) -> Iterator[tuple[str, bytes]]:
    if not names:
        return
    try:
        at = os.open(directory.place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it is gone
        tally.skipped += len(names)
        return
    try:
        for name in names:
            data = _content(name, at)
            if data is None:
                tally.skipped += 1
                continue
            tally.searched += 1
            if data.find(b"\0", 0, _FIRST_READ) < 0:
                yield shown(f"{directory.path}{name}"), data
    finally:
        os.close(at)


def _content(name: str, at: int) -> bytes | None:
    """The bytes of a file; None if it cannot be read or is too large."""
    try:
        descriptor = os.open(name, _OPEN, dir_fd=at)
    except OSError:
        return None
    try:
        data = os.read(descriptor, _FIRST_READ)
        if len(data) == _FIRST_READ:
            if os.fstat(descriptor).st_size > MAX_FILE_BYTES:
                return None
            with os.fdopen(os.dup(descriptor), "rb") as file:
                data += file.read(MAX_FILE_BYTES)
        return data
    except OSError:
        return None
    finally:
        os.close(descriptor)
