"""`edit`: replace an exact piece of a file's text.

`read` shows lines without their ends, so a newline of `old_text` fits "\\n" and "\\r\\n" alike, also in a file that has
both. A line that the edit leaves as it is keeps its end, and a new line takes the end of the lines around it. Line ends
are literal if `new_text` has "\\r", or if `old_text` has "\\r" and occurs exactly so.
"""

import re
from bisect import bisect_left
from difflib import SequenceMatcher
from typing import Annotated, NamedTuple

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.options import Annotations
from toolcell_tools.preview import Preview, counted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField
from toolcell_tools.text_file import content, decoded, encoded, end_of, lines_of, model_text

from .compare import Replacement, diff_of_replacements, line_number, nearest

__all__ = ["edit"]


class _Change(NamedTuple):
    """A planned edit: the file's text, and what takes the place of which pieces of it."""

    text: str
    replacements: list[Replacement]

    def applied(self) -> str:
        parts: list[str] = []
        at = 0
        for start, end, new in self.replacements:
            parts += [self.text[at:start], new]
            at = end
        return "".join([*parts, self.text[at:]])


def preview_edit(ctx: ToolContext, path: str, old_text: str, new_text: str, replace_all: bool) -> Preview:
    """The diff of the edit, or why it would fail."""
    try:
        change = _change(ctx, path, old_text, new_text, replace_all)
    except ToolFailure as failure:
        return Preview(f"Edit {path}", f"This edit would fail: {failure.message}")
    diff = diff_of_replacements(path, change.text, change.replacements)
    return Preview(f"Edit {path} in {_count(change)}", diff=diff)


@tool(
    needs={Capability.READ, Capability.WRITE},
    preview=preview_edit,
    annotations=Annotations(title="Edit a file", destructive=True, edit=True, sequential=True),
)
def edit(
    ctx: ToolContext,
    path: Annotated[str, LazyField("The file, relative to the workspace.")],
    old_text: Annotated[str, LazyField("The text to replace, exactly, whitespace included.", min_length=1)],
    new_text: Annotated[str, LazyField("What to put in its place.")],
    replace_all: Annotated[bool, LazyField("Replace every occurrence rather than the only one.")] = False,
) -> Answer:
    """Replace a piece of a text file. The old text must occur exactly once, unless replace_all is set."""
    writer = require(ctx.writer, Capability.WRITE)
    writer.check(path)
    change = _change(ctx, path, old_text, new_text, replace_all)
    artifact = writer.write_bytes(path, encoded(change.applied(), change.text, new_text, path))
    diff = diff_of_replacements(artifact.path, change.text, change.replacements)
    output = {"path": artifact.path, "replacements": len(change.replacements), "diff": diff}
    return Answer(output=output, display=f"Edited {artifact.path} in {_count(change)}", artifacts=[artifact])


def _change(ctx: ToolContext, path: str, old: str, new: str, replace_all: bool) -> _Change:
    """Read the file and find the places. Raises ToolFailure if there are none, or several without `replace_all`."""
    text = decoded(ctx.workspace.read_bytes(path), path)
    replacements = _replacements(text, model_text(old, "old_text"), model_text(new, "new_text"))
    if old == new or (replacements and all(text[start:end] == piece for start, end, piece in replacements)):
        raise ToolFailure("old_text and new_text are the same; there is nothing to change")
    if not replacements:
        raise ToolFailure(_not_found(text, old, path))
    if len(replacements) > 1 and not replace_all:
        lines = [line_number(text, start) for start, _, _ in replacements]
        raise ToolFailure(
            f"old_text occurs {len(lines):,} times in {path!r}, on lines {', '.join(map(str, lines[:10]))}"
            f"{', …' if len(lines) > 10 else ''}. Add lines around it to make it unique, or set replace_all.",
            {"occurrences": len(lines), "lines": lines[:100]},
        )
    return _Change(text, replacements)


def _count(change: _Change) -> str:
    return counted(len(change.replacements), "place")


def _replacements(text: str, old: str, new: str) -> list[Replacement]:
    if "\r" in old and old in text:
        return [Replacement(start, start + len(old), new) for start in _places(text, old)]
    if "\r\n" in old:  # the file has other ends than the model wrote
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    plain = text.replace("\r\n", "\n")
    places = _places(plain, old)
    if len(plain) == len(text):
        return [Replacement(start, start + len(old), new) for start in places]
    pairs = _pairs(text)
    spans = [
        (start + bisect_left(pairs, start), start + len(old) + bisect_left(pairs, start + len(old))) for start in places
    ]
    return [Replacement(start, end, _with_ends(text, start, end, new)) for start, end in spans]


def _pairs(text: str) -> list[int]:
    """The offset of each "\\r\\n", in the text with every "\\r\\n" as "\\n"."""
    return [found.start() - number for number, found in enumerate(re.finditer("\r\n", text))]


def _with_ends(text: str, start: int, end: int, new: str) -> str:
    """The new text with the line ends of the lines that it replaces. A line that replaces none has the end of the line
    before it."""
    if "\n" not in new or "\r\n" in new:
        return new
    before = text.rfind("\n", 0, start)
    default = _end_at(text, text.find("\n", start)) or _end_at(text, before) or "\n"
    old_lines, new_lines = lines_of(text[start:end]), lines_of(new)
    if len({end_of(line) for line in old_lines if end_of(line)}) <= 1:
        return new.replace("\n", default)
    matcher = SequenceMatcher(None, [content(line) for line in old_lines], [content(line) for line in new_lines], False)
    counterparts = {
        block.b + at: old_lines[block.a + at] for block in matcher.get_matching_blocks() for at in range(block.size)
    }
    written: list[str] = []
    for number, line in enumerate(new_lines):
        default = end_of(counterparts.get(number, "")) or default
        written.append(content(line) + (default if end_of(line) else ""))
    return "".join(written)


def _end_at(text: str, newline: int) -> str:
    """The line end whose "\\n" is at this offset; "" for an offset of -1."""
    if newline < 0:
        return ""
    return "\r\n" if text[newline - 1 : newline] == "\r" else "\n"


def _places(text: str, old: str) -> list[int]:
    """The offsets at which `old` begins, without overlaps, as str.replace finds them."""
    places: list[int] = []
    place = text.find(old)
    while place >= 0:
        places.append(place)
        place = text.find(old, place + len(old))
    return places


def _not_found(text: str, old: str, path: str) -> str:
    message = f"old_text was not found in {path!r}; it must match exactly, whitespace included."
    near = nearest([content(line) for line in lines_of(text)], [content(line) for line in lines_of(old)])
    if near is None:
        return f"{message} Nothing in it is close. Read the file again."
    if not near.differing:
        return f"{message} Its lines are at line {near.first}, but the line ends differ. Read the file again."
    return f"{message} {near.mismatch('old_text')} Read the file again."
