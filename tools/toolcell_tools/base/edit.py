"""`edit`: replace an exact piece of a file's text."""

from typing import Annotated, NamedTuple

from toolcell_tools.annotations import Annotations
from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.failures import ToolFailure
from toolcell_tools.function import tool
from toolcell_tools.lazy import Answer, LazyField
from toolcell_tools.preview import Preview

from .diffs import diff_of_replacements, line_number
from .nearest import nearest

__all__ = ["edit"]


class _Change(NamedTuple):
    """A planned edit: the file's text, and the places where `old` becomes `new`."""

    text: str
    places: list[int]
    old: str
    new: str


def preview_edit(ctx: ToolContext, path: str, old_text: str, new_text: str, replace_all: bool) -> Preview:
    """The diff of the edit, or why it would fail."""
    try:
        change = _change(ctx, path, old_text, new_text, replace_all)
    except ToolFailure as failure:
        return Preview(f"Edit {path}", f"This edit would fail: {failure.message}")
    diff = diff_of_replacements(path, change.text, change.places, change.old, change.new)
    return Preview(f"Edit {path} in {_count(change.places)}", diff=diff)


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
    text, places, old, new = _change(ctx, path, old_text, new_text, replace_all)
    artifact = writer.write_text(path, text.replace(old, new))
    diff = diff_of_replacements(artifact.path, text, places, old, new)
    output = {"path": artifact.path, "replacements": len(places), "diff": diff}
    return Answer(output=output, display=f"Edited {artifact.path} in {_count(places)}", artifacts=[artifact])


def _change(ctx: ToolContext, path: str, old: str, new: str, replace_all: bool) -> _Change:
    """Read the file and find the places. Raises ToolFailure if there are none, or several without `replace_all`."""
    text = ctx.workspace.read_text(path)
    if "\r\n" in text and old not in text:
        # `read` shows lines without their ends. A file with Windows line ends keeps them.
        old, new = _windows_ends(old), _windows_ends(new)
    if old == new:
        raise ToolFailure("old_text and new_text are the same; there is nothing to change")
    places = _places(text, old)
    if not places:
        raise ToolFailure(_not_found(text, old, path))
    if len(places) > 1 and not replace_all:
        lines = [line_number(text, place) for place in places]
        raise ToolFailure(
            f"old_text occurs {len(places):,} times in {path!r}, on lines {', '.join(map(str, lines[:10]))}"
            f"{', …' if len(lines) > 10 else ''}. Add lines around it to make it unique, or set replace_all.",
            {"occurrences": len(places), "lines": lines[:100]},
        )
    return _Change(text, places, old, new)


def _count(places: list[int]) -> str:
    return "1 place" if len(places) == 1 else f"{len(places):,} places"


def _windows_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


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
    near = nearest(text.splitlines(), old.splitlines())
    if near is None:
        return f"{message} Nothing in it is close. Read the file again."
    if not near.differing:
        return f"{message} Its lines are at line {near.first}, but the line ends differ. Read the file again."
    return f"{message} {near.mismatch('old_text')} Read the file again."
