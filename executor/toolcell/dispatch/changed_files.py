"""Make artifacts of the files that a call has changed."""

import os
import time
from dataclasses import replace
from functools import partial
from typing import Final

from toolcell.backends.threads import FILES, NoThread
from toolcell.sessions.changes import CallChanges, ListedChanges
from toolcell_sandbox.trees.changes import ChangedFile, order_of
from toolcell_sandbox.trees.facts import NAME_CHARS
from toolcell_tools.artifact import Artifact
from toolcell_tools.result import Notice, ToolResult

DIFF_CHARS: Final = 20_000
"""The most characters of one diff."""
DIFFS_CHARS: Final = 100_000
"""The most characters of the diffs of one result."""
COMPARED_LINES: Final = 1_000
"""The most lines of a change that are compared, old and new ones: the time grows with their product."""
DIFFS_S: Final = 0.5
SHORT_BYTES, SHORT_LINES = 8_192, 60
"""The most bytes and lines that are compared on the event loop: about 0.5 ms at worst."""
_OWN_KINDS: Final = frozenset({"created", "modified", "deleted"})


async def with_changes(result: ToolResult, call: CallChanges) -> ToolResult:
    """The result with an artifact for each changed file, and a notice if some may be missing."""
    listed = call.listed or await listed_of(call)
    notices = result.notices
    if listed.unknown or listed.found > len(listed.artifacts):
        notices = (*notices, _incomplete(listed))
    return result.model_copy(update={"artifacts": _merged(result.artifacts, listed.artifacts), "notices": notices})


async def listed_of(call: CallChanges) -> ListedChanges:
    """The changes of a call as artifacts with diffs, at most `call.most` and of bounded size."""
    changes = sorted(call.found.values(), key=order_of)[: call.most]
    texts = [each for each in changes if each.before is not None and each.after is not None]
    if not texts or _are_short(texts):
        made = _artifacts(changes)  # comparing so little takes less than a thread
    else:
        try:
            made = await FILES.run(partial(_artifacts, changes))
        except NoThread:
            made = [_artifact(change) for change in changes]
    return ListedChanges(made, len(call.found), call.unknown)


def _are_short(changes: list[ChangedFile]) -> bool:
    texts = [text for change in changes for text in (change.before, change.after) if text]
    return sum(map(len, texts)) <= SHORT_BYTES and sum(text.count(b"\n") + 1 for text in texts) <= SHORT_LINES


def _merged(declared: list[Artifact], found: list[Artifact]) -> list[Artifact]:
    """The artifacts of the tool, with the facts that the supervisor found, then the artifacts of the other changed
    files."""
    by_path = {each.path: each for each in found}
    merged = [_known(each, by_path.pop(each.path, None)) for each in declared]
    return [*merged, *by_path.values()]


def _known(declared: Artifact, found: Artifact | None) -> Artifact:
    if found is None or declared.data is not None:
        return declared
    kind = found.kind if declared.kind in _OWN_KINDS else declared.kind
    return replace(declared, kind=kind, digest=found.digest, size=found.size, diff=found.diff)


def _artifacts(changes: list[ChangedFile]) -> list[Artifact]:
    """The artifacts, with diffs of texts within the bounds."""
    left, until = DIFFS_CHARS, time.monotonic() + DIFFS_S
    made: list[Artifact] = []
    for change in changes:
        diff = _diff(change) if left > 0 and time.monotonic() < until else None
        left -= len(diff or "")
        made.append(_artifact(change, diff))
    return made


def _artifact(change: ChangedFile, diff: str | None = None) -> Artifact:
    return Artifact(_text(change.path), change.kind, change.digest or None, change.size, diff=diff)


def _text(path: str) -> str:
    """A path as text for JSON. Bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _diff(change: ChangedFile) -> str | None:
    if change.before is None or change.after is None or b"\0" in change.before or b"\0" in change.after:
        return None
    try:
        before, after = change.before.decode(), change.after.decode()
    except UnicodeDecodeError:
        return None
    from toolcell_tools.base.compare import diff_of_texts  # difflib, which only changed texts need

    name = ascii(_text(change.path))[1:-1]  # one line, whatever is in the name
    return diff_of_texts(name, before, after, most_lines=COMPARED_LINES, most_chars=DIFF_CHARS)


def _incomplete(listed: ListedChanges) -> Notice:
    """The notice that not all changed files are listed."""
    if unknown := listed.unknown:
        why = unknown if len(unknown) <= 2 * NAME_CHARS else f"{unknown[: 2 * NAME_CHARS]}…"
        message = f"The list of changed files may be incomplete: {why}."
    else:
        message = f"The call changed {listed.found:,} files, and the result lists {len(listed.artifacts):,} of them."
    return Notice(kind="changed_files", message=message)
