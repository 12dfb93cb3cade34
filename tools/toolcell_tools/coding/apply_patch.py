"""`apply_patch`: change several files at once, by a patch."""

from pathlib import Path
from typing import Annotated, NamedTuple

from toolcell_tools.annotations import Annotations
from toolcell_tools.artifact import Artifact
from toolcell_tools.base.diffs import diff_of_texts
from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.failures import ToolFailure
from toolcell_tools.function import tool
from toolcell_tools.lazy import Answer, LazyField
from toolcell_tools.preview import Preview

from .outputs import CHANGES
from .patch import FileChange, parsed
from .place import Misplaced, applied

__all__ = ["apply_patch"]

_DIFF_CHARS = 20_000
_EXAMPLE = """*** Begin Patch
*** Update File: src/app.py
@@ def main():
-    print("hi")
+    print("hello")
*** Add File: notes.txt
+First line
*** End Patch"""


class _Planned(NamedTuple):
    """A file's path and text before the patch and after it; None where there is no file."""

    old: str
    before: str | None
    new: str
    after: str | None


def preview_apply_patch(ctx: ToolContext, patch: str) -> Preview:
    """The diff of all files, or why the patch would fail."""
    try:
        planned = _plan(ctx, patch)
    except ToolFailure as failure:
        return Preview("Apply a patch", f"This patch would fail: {failure.message}")
    return Preview(f"Change {_counted(planned)}", diff=_diff(planned))


@tool(
    needs={Capability.READ, Capability.WRITE},
    preview=preview_apply_patch,
    annotations=Annotations(title="Apply a patch", destructive=True, edit=True, sequential=True),
    output_schema=CHANGES,
)
def apply_patch(
    ctx: ToolContext,
    patch: Annotated[
        str,
        LazyField(
            "The patch: from '*** Begin Patch' to '*** End Patch', or a unified diff. Paths are relative to the "
            "workspace.",
            min_length=1,
            examples=[_EXAMPLE],
        ),
    ],
) -> Answer:
    """Change, add, move and delete text files by a patch. If a hunk does not fit, no file is changed."""
    writer = require(ctx.writer, Capability.WRITE)
    planned = _plan(ctx, patch)
    for change in planned:
        for path in {change.old, change.new} - {""}:
            writer.check(path)
    changes: list[dict[str, str]] = []
    artifacts: list[Artifact] = []
    for old, before, new, after in planned:
        if after is None:
            artifacts.append(writer.unlink(old))
            changes.append({"path": old, "action": "deleted"})
            continue
        made = writer.write_text(new, after)
        artifacts.append(made)
        changes.append({"path": new, "action": "modified" if before is not None and old == new else made.kind})
        if old and old != new:
            artifacts.append(writer.unlink(old))
            changes[-1]["moved_from"] = old
    output = {"changes": changes, "diff": _diff(planned)}
    return Answer(output=output, display=f"Changed {_counted(planned)}", artifacts=artifacts)


def _plan(ctx: ToolContext, patch: str) -> list[_Planned]:
    """The text of each file after the patch. Raises ToolFailure, before anything is changed."""
    planned = [_planned(ctx, change) for change in parsed(patch)]
    _refuse_clashes(ctx, planned)
    return planned


def _refuse_clashes(ctx: ToolContext, planned: list[_Planned]) -> None:
    """Raise ToolFailure if two changes have one file under different names, or a file would need a file as its
    directory. The second change would undo the first, or fail after it."""
    written: dict[Path, str] = {}
    removed: dict[Path, str] = {}
    for old, _, new, after in planned:
        if after is not None:
            place = ctx.workspace.resolve(new)
            if place in written or place in removed:
                raise _clash(new, written.get(place) or removed[place])
            for above in place.parents:
                if above in written or (above.is_file() and above not in removed):
                    raise ToolFailure(f"{new!r}: a part of the path is a file, not a directory. No file was changed.")
            written[place] = new
        if old and old != new:  # a link is removed itself
            parent, _, name = old.rpartition("/")
            place = ctx.workspace.resolve(parent or ".") / name
            if place in written or place in removed:
                raise _clash(old, written.get(place) or removed[place])
            removed[place] = old


def _clash(path: str, other: str) -> ToolFailure:
    return ToolFailure(
        f"the patch changes one file twice, as {other!r} and as {path!r}; put all its hunks below one header. No file "
        "was changed."
    )


def _planned(ctx: ToolContext, change: FileChange) -> _Planned:
    old, new, hunks = change
    if not old and not new:
        raise ToolFailure("a file of the patch has no path")
    if not old:
        if ctx.workspace.exists(new):
            raise ToolFailure(f"{new!r} exists already; update it, or delete it first")
        lines = [line for hunk in hunks for line in hunk.new]
        has_newline = bool(lines) and not (hunks and hunks[-1].ends_without_newline)
        return _Planned("", None, new, "\n".join(lines) + "\n" * has_newline)
    before = ctx.workspace.read_text(old)
    if not new:
        return _Planned(old, before, "", None)
    if new != old and ctx.workspace.exists(new):
        raise ToolFailure(f"{old!r} cannot be moved to {new!r}, which exists already")
    try:
        return _Planned(old, before, new, applied(before, hunks, old))
    except Misplaced as error:
        raise ToolFailure(f"{error} No file was changed.") from error


def _diff(planned: list[_Planned]) -> str:
    diff = "\n".join(diff_of_texts(new or old, before or "", after or "") for old, before, new, after in planned)
    if len(diff) > _DIFF_CHARS:
        return f"{diff[:_DIFF_CHARS]}\n[… {len(diff) - _DIFF_CHARS:,} more characters left out …]"
    return diff


def _counted(planned: list[_Planned]) -> str:
    return (planned[0].new or planned[0].old) if len(planned) == 1 else f"{len(planned):,} files"
