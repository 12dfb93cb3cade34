"""Artifacts for the files that a call changed in its workspace by whatever way: a look before it, and one after."""

import os
import time
from collections import OrderedDict, deque
from functools import partial
from pathlib import Path

from toolcell.backends.threads import FILES, NoThread
from toolcell.sessions.protection import Watch
from toolcell_sandbox.files import ChangedFile, FilesLook, changes_of, look_at_files
from toolcell_tools.artifact import Artifact, merged
from toolcell_tools.result import Notice, ToolResult

MAX_FILES = 200
MAX_DIFF_LINES = 400
"""Of both texts together. The time of a comparison grows with their square, and a cell chooses the texts."""
DIFFS_S = 0.5
DIFFS_CHARS = 100_000
WORKSPACES = 16
LOOKS = 4
"""Looks are kept of so many workspaces, the last ones of each. They share the content of unchanged files."""


class ChangedFiles:
    """The looks of a supervisor with `file_artifacts=True`.

    Calls that overlap in one workspace cannot be told apart: each has the changes of all. A call that waited for
    another has not the changes of that one, because its own time begins with the last look before it started.
    """

    def __init__(self) -> None:
        self._looks: OrderedDict[str, deque[FilesLook]] = OrderedDict()

    async def look(self, workspace: Path) -> FilesLook:
        """Look at a workspace. The content of files that have not changed comes from the last look."""
        root = os.path.realpath(workspace)
        looks = self._looks.setdefault(root, deque(maxlen=LOOKS))
        self._looks.move_to_end(root)
        while len(self._looks) > WORKSPACES:
            self._looks.popitem(last=False)
        try:
            found = await FILES.run(partial(look_at_files, root, looks[-1] if looks else None))
        except NoThread as error:
            return FilesLook(unknown=str(error))
        looks.append(found)
        return found

    async def added(self, watch: Watch, started_at: float, workspace: Path, result: ToolResult) -> ToolResult:
        """The result with an artifact for each file that changed while the call ran."""
        before, after = watch.files_before, watch.files_after
        if before is None or after is None or not started_at:
            return result
        root = os.path.realpath(workspace)
        later = [each for each in self._looks.get(root, ()) if before.ended <= each.ended <= started_at]
        before = max([before, *later], key=lambda look: look.ended)
        unknown = before.unknown or after.unknown
        try:
            artifacts, count = await FILES.run(partial(_artifacts, root, before, after))
        except NoThread as error:
            artifacts, count, unknown = [], 0, unknown or str(error)
        notices = [] if not unknown else [f"The look for changed files is incomplete: {unknown}."]
        if count > MAX_FILES:
            notices.append(f"The call changed {count:,} files. The first {MAX_FILES} are artifacts.")
        told = tuple(Notice(kind="unchecked", message=message) for message in notices)
        if not artifacts and not told:
            return result
        own = {artifact.path for artifact in artifacts}
        declared = [each for each in result.artifacts if each.path not in own or each.kind not in _BY_HANDLES]
        return result.model_copy(update={"artifacts": merged(declared, artifacts), "notices": (*result.notices, *told)})


_BY_HANDLES = ("created", "modified", "deleted")


def _artifacts(root: str, before: FilesLook, after: FilesLook) -> tuple[list[Artifact], int]:
    changes, count = changes_of(root, before, after, MAX_FILES)
    until, left = time.monotonic() + DIFFS_S, DIFFS_CHARS
    artifacts: list[Artifact] = []
    for change in changes:
        path = os.fsencode(change.path).decode("utf-8", "backslashreplace")
        diff = _diff(path, change) if time.monotonic() < until else None
        if diff is not None and len(diff) > left:
            diff = None
        left -= len(diff or "")
        artifacts.append(Artifact(path, change.kind, change.digest, change.size, diff=diff))
    return artifacts, count


def _diff(path: str, change: ChangedFile) -> str | None:
    """The unified diff of a text, or None for any other content, and for one that is unknown or too long."""
    if (change.before is None and change.kind != "created") or (change.after is None and change.kind != "deleted"):
        return None
    from toolcell_tools.base.diffs import diff_of_texts  # it loads difflib, which most supervisors never need

    raw = change.before or b"", change.after or b""
    if b"\0" in raw[0] + raw[1] or raw[0].count(b"\n") + raw[1].count(b"\n") > MAX_DIFF_LINES:
        return None
    try:
        return diff_of_texts(path, raw[0].decode(), raw[1].decode())
    except UnicodeDecodeError:
        return None
