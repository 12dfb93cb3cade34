"""`write`: make or replace a file."""

from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.failures import MissingCapability, ToolFailure
from toolcell_tools.options import Annotations
from toolcell_tools.preview import DETAILS_CHARS, Preview, counted, fitted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField
from toolcell_tools.text_file import decoded, lines_of

from .compare import diff_of_texts

__all__ = ["write"]


def preview_write(ctx: ToolContext, path: str, content: str) -> Preview:
    """The change as a diff against the existing file, if the call may read it and it is text."""
    try:
        there = ctx.workspace.exists(path)
        before = decoded(ctx.workspace.read_bytes(path), path) if there else ""
    except MissingCapability:
        return Preview(f"Write {path}", fitted(content, DETAILS_CHARS))
    except ToolFailure as failure:
        return Preview(f"Write {path}", f"The file that is there: {failure.message}.")
    verb = "Replace" if there else "Create"
    lines = counted(len(lines_of(content)), "line")
    return Preview(f"{verb} {path} ({lines})", diff=diff_of_texts(path, before, content))


@tool(
    needs={Capability.WRITE},
    preview=preview_write,
    annotations=Annotations(title="Write a file", destructive=True, idempotent=True, edit=True, sequential=True),
)
def write(
    ctx: ToolContext,
    path: Annotated[str, LazyField("The file, relative to the workspace. Missing directories are made.")],
    content: Annotated[str, LazyField("All that the file shall contain.")],
) -> Answer:
    """Write a text file, replacing it if it exists. To change a part of a file, use edit."""
    artifact = require(ctx.writer, Capability.WRITE).write_text(path, content)
    lines = len(lines_of(content))
    output = {"path": artifact.path, "action": artifact.kind, "bytes": artifact.size, "lines": lines}
    verb = "Created" if artifact.kind == "created" else "Replaced"
    return Answer(output=output, display=f"{verb} {artifact.path} ({counted(lines, 'line')})", artifacts=[artifact])
