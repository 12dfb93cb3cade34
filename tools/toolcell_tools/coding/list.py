"""`list`: show the entries of a directory, and of those below it."""

import os
import stat
from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.preview import Preview, counted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

from .output_schemas import LISTING
from .walk import WalkedDirectory, shown, walk

__all__ = ["list_directory"]

MOST = 1_000


def preview_list(path: str, depth: int) -> Preview:
    """The directory, and how deep."""
    return Preview(f"List {path}" + (f", {depth} levels deep" if depth > 1 else ""))


@tool(
    name="list",
    needs={Capability.READ},
    preview=preview_list,
    annotations=Annotations(title="List a directory", idempotent=True),
    output_schema=LISTING,
)
def list_directory(
    ctx: ToolContext,
    path: Annotated[str, LazyField("The directory, relative to the workspace.", examples=["src"])] = ".",
    depth: Annotated[int, LazyField("How many levels to show.", ge=1, le=10, examples=[2])] = 1,
    ignored: Annotated[bool, LazyField("Show what .gitignore leaves out too.")] = False,
) -> Answer:
    """List a directory: files with their sizes, directories and links, without what .gitignore leaves out."""
    entries: list[dict[str, object]] = []
    total = 0
    for directory in walk(ctx.workspace, path, depth=depth, everything=ignored):
        found = _entries(directory, MOST - len(entries))
        total += len(directory.files) + len(directory.links) + len(directory.directories)
        entries.extend(found)
    entries.sort(key=lambda entry: str(entry["path"]))
    output: dict[str, object] = {"path": path, "entries": entries}
    if total > len(entries):
        output["more"] = f"{total - len(entries):,} more entries are left out; list a directory below"
    return Answer(output=output, display=f"Listed {path}: {counted(total, 'entry', 'entries')}")


def _entries(directory: WalkedDirectory, most: int) -> list[dict[str, object]]:
    """The first `most` entries of a directory."""
    found: list[dict[str, object]] = []
    kinds = (("file", directory.files), ("link", directory.links), ("directory", directory.directories))
    for name, kind in sorted((name, kind) for kind, names in kinds for name in names)[:most]:
        entry: dict[str, object] = {"path": shown(f"{directory.path}{name}"), "kind": kind}
        size = _size(f"{directory.place}/{name}") if kind == "file" else None
        found.append(entry if size is None else {**entry, "size": size})
    return found


def _size(place: str) -> int | None:
    try:
        status = os.lstat(place)
    except OSError:  # it is gone
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
