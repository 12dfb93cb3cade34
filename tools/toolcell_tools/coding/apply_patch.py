"""`apply_patch`: change several files at once, by a patch."""

import json
from pathlib import Path
from typing import Annotated, NamedTuple

from toolcell_tools.base.compare import bounded, diff_of_texts
from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.file_changes import FileChange
from toolcell_tools.options import Annotations
from toolcell_tools.preview import Preview, counted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField
from toolcell_tools.text_file import decoded, encoded, flaw_of_text, model_text

from .apply_hunks import Misplaced, applied
from .output_schemas import CHANGES
from .patch import FilePatch, parsed

__all__ = ["apply_patch"]

_EXAMPLE = """*** Begin Patch
*** Update File: src/app.py
@@ def main():
-    print("hi")
+    print("hello")
*** Add File: notes.txt
+First line
*** End Patch"""


class _Planned(NamedTuple):
    """A file of the patch with its content before and after; None where there is no file."""

    patch: FilePatch
    before: bytes | None
    after: bytes | None

    def changes(self) -> list[FileChange]:
        old, new = self.patch.old, self.patch.new
        changes: list[FileChange] = []
        if new:
            changes.append(FileChange(new, self.after, Path(old) if old else None, self.patch.executable))
        if self.removes:
            changes.append(FileChange(old, None))
        return changes

    @property
    def removes(self) -> bool:
        return self.patch.old not in {"", self.patch.new} and not self.patch.copy

    @property
    def text(self) -> tuple[str, str]:
        """Before and after, for a diff."""
        return ((self.before or b"").decode(errors="replace"), (self.after or b"").decode(errors="replace"))


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
    """Change, add, move and delete text files by a patch. If a part of it does not fit, no file is changed."""
    writer = require(ctx.writer, Capability.WRITE)
    try:
        planned = _plan(ctx, patch)
        for change in planned:
            for path in {change.patch.old, change.patch.new} - {""}:
                writer.check(path)
        artifacts = writer.change(_without_doubles(planned), prune=planned[0].patch.git)
    except ToolFailure as failure:
        raise ToolFailure(f"{failure.message.rstrip('.')}. No file was changed.", failure.data) from failure
    output = {"changes": [_answer(change) for change in planned], "diff": _diff(planned)}
    return Answer(output=output, display=f"Changed {_counted(planned)}", artifacts=artifacts)


def _without_doubles(planned: list[_Planned]) -> list[FileChange]:
    """The changes, without the removal of a file whose name another one takes."""
    written = {change.patch.new for change in planned}
    changes = [change for file in planned for change in file.changes()]
    return [change for change in changes if change.data is not None or change.name not in written]


def _answer(planned: _Planned) -> dict[str, str]:
    old, new = planned.patch.old, planned.patch.new
    answer = {"path": new or old, "action": "created" if new != old else "modified"}
    if not new:
        answer["action"] = "deleted"
    elif planned.removes:
        answer["moved_from"] = old
    return answer


def _plan(ctx: ToolContext, patch: str) -> list[_Planned]:
    """Each file after the patch. Raises ToolFailure, before anything is changed."""
    patches = parsed(model_text(patch, "the patch"))
    gone = {one.old for one in patches if one.git and one.old != one.new and not one.copy}
    planned = [_planned(ctx, change, gone) for change in patches]
    _refuse_clashes(ctx, planned)
    return planned


def _refuse_clashes(ctx: ToolContext, planned: list[_Planned]) -> None:
    """Raise ToolFailure if two changes are of the same file under different names, or if a new path has a file as a
    directory."""
    written: dict[Path, str] = {}
    removed: dict[Path, str] = {}
    for change in planned:
        if change.removes:  # a link is removed itself
            parent, _, name = change.patch.old.rpartition("/")
            place = ctx.workspace.resolve(parent or ".") / name
            if place in removed:
                raise _clash(change.patch.old, removed[place])
            removed[place] = change.patch.old
    for change in planned:
        new = change.patch.new
        if not new:
            continue
        place = ctx.workspace.resolve(new)
        if place in written or (place in removed and not change.patch.git):
            raise _clash(new, written.get(place) or removed[place])
        written[place] = new
    for place, new in written.items():
        if any(above in written or (above.is_file() and above not in removed) for above in place.parents):
            raise ToolFailure(f"{new!r}: a part of the path is a file, not a directory")


def _clash(path: str, other: str) -> ToolFailure:
    return ToolFailure(
        f"the patch changes one file twice, as {other!r} and as {path!r}; put all its hunks below one header"
    )


def _planned(ctx: ToolContext, patch: FilePatch, gone: set[str]) -> _Planned:
    """`gone` are the files that the patch moves or deletes."""
    old, new = patch.old, patch.new
    if not old and not new:
        raise ToolFailure("a file of the patch has no path")
    if patch.git:
        _refuse_links(ctx, patch)
    if new and new != old and new not in gone and ctx.workspace.exists(new):
        cure = "update it, or delete it first" if not old else f"so {old!r} cannot be moved or copied there"
        if not ctx.workspace.resolve(new).is_dir():
            raise ToolFailure(f"{new!r} exists already; {cure}")
    before = ctx.workspace.read_bytes(old) if old else None
    if not patch.hunks:
        if patch.git and not new and before:
            raise ToolFailure(f"the patch deletes {old!r} without its content, and the file is not empty")
        return _Planned(patch, before, (before or b"") if new else None)
    text = decoded(before or b"", old)
    try:
        after = applied(text, patch.hunks, old or new, git=patch.git)
    except Misplaced as error:
        raise ToolFailure(str(error)) from error
    if not new and after:
        raise ToolFailure(f"the patch deletes {old!r}, but removes only some of its lines")
    added = "".join(line for hunk in patch.hunks for sign, line in hunk.lines if sign == "+")
    return _Planned(patch, before, encoded(after, text, added, new) if new else None)


def _refuse_links(ctx: ToolContext, patch: FilePatch) -> None:
    """Refuse symbolic links in a path, as `git apply` does."""
    for path in {patch.old, patch.new} - {""}:
        if ctx.workspace.resolve(path) != ctx.workspace.root / path:
            raise ToolFailure(f"{path!r} leads through a symbolic link, which is not in the diff; name its target")


def _diff(planned: list[_Planned]) -> str:
    return bounded("\n".join(_diff_of(change) for change in planned))


def _diff_of(planned: _Planned) -> str:
    """The diff of one file, after what it does not show: another name or mode."""
    patch = planned.patch
    old, new = (_shown(name) for name in (patch.old, patch.new))
    lines: list[str] = []
    if old and new and old != new:
        verb = "copy" if patch.copy else "rename"
        lines += [f"{verb} from {old}", f"{verb} to {new}"]
    if new and patch.executable is not None:
        lines.append(f"{'new mode' if patch.old else 'new file mode'} {'100755' if patch.executable else '100644'}")
    if flaw_of_text(planned.before or b"") and planned.before != planned.after:
        lines.append(f"Binary file {new or old}")
    elif planned.before != planned.after or not lines:
        lines.append(diff_of_texts(new or old, *planned.text))
    return "\n".join(lines)


def _shown(name: str) -> str:
    return name if name.isprintable() and '"' not in name else json.dumps(name, ensure_ascii=False)


def _counted(planned: list[_Planned]) -> str:
    return (planned[0].patch.new or planned[0].patch.old) if len(planned) == 1 else counted(len(planned), "file")
