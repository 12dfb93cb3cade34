"""Write the changes of a copy into the workspace that it was copied from.

A hostile cell may have made the changes, and the workspace has gone on meanwhile. So each change is judged first
(`toolcell_sandbox.trees.judge`), and written only if the path is as it was when it was copied; otherwise it is a
conflict. Deletions come first, the deepest before their directories, then new and changed entries from the root down.
At the end the workspace is audited as after a call that ran here: what has become a protected name by these changes,
or by earlier ones, is moved away.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from toolcell_sandbox.trees.audit import ProtectedTree
from toolcell_sandbox.trees.facts import Facts, Look, said
from toolcell_sandbox.trees.judge import Judge
from toolcell_sandbox.trees.quarantine import Quarantine
from toolcell_sandbox.trees.walker import Root

from .diff import ReceivedDiff
from .entry_swap import MovedOn, make_directory, place, remove
from .exclusions import Exclusions
from .listing import MOST_LISTED, LeftEntry, TreeEntry, UnstableFile, digested
from .workspace_return import ConflictPolicy, FileConflict, FileVersion, LeftOut, WorkspaceReturn

__all__ = ["ApplyReport", "apply"]

ATTEMPTS: Final = 3
BESIDE: Final = ".theirs"
MOST_BESIDE: Final = 100
MOST_READ: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """The report, and the paths whose state is now the same here and on the node."""

    report: WorkspaceReturn
    settled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Here:
    """The present state of a path here."""

    entry: TreeEntry | None
    facts: Facts | None
    is_other: bool = False
    """Whether it is a device, a socket or a FIFO."""

    @property
    def kind(self) -> str:
        return "" if self.entry is None else self.entry.kind

    def is_as(self, expected: TreeEntry | None) -> bool:
        if self.is_other:
            return False
        return expected is None if self.entry is None else self.entry.is_like(expected)

    @property
    def version(self) -> FileVersion | None:
        return FileVersion(kind="other") if self.is_other else _version(self.entry)


@dataclass(slots=True)
class _Notes:
    created: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    conflicts: list[FileConflict] = field(default_factory=list[FileConflict])
    left_out: list[LeftEntry] = field(default_factory=list[LeftEntry])
    left_count: int = 0
    settled: list[str] = field(default_factory=list[str])

    def leave_out(self, path: str, why: str) -> None:
        self.left_count += 1
        if len(self.left_out) < MOST_LISTED:
            self.left_out.append((path, why))


def apply(
    path: str,
    diff: ReceivedDiff,
    fill: Callable[[TreeEntry, int], object],
    *,
    protected: Sequence[str],
    exclusions: Exclusions,
    policy: ConflictPolicy,
    quarantine: Quarantine | None = None,
) -> ApplyReport:
    """Write the changes into the directory at a real path. `fill(entry, fd)` writes the content of a file. Raises
    OSError if the directory cannot be opened. Blocks.

    A file may be protected by what lies here: by the settings of a repository that name it, or because a later return
    makes its directory a repository. So the directory is audited as after a call that runs here, with the same
    quarantine."""
    tree = ProtectedTree(path, protected) if diff.made else None
    before = tree.look() if tree is not None else Look(0)
    with Root(path) as root:
        work = _DiffWriter(root, diff, fill, policy, Judge(root, diff.made, protected, exclusions.covers))
        for name in sorted(diff.gone, reverse=True):  # the entries of a directory before the directory itself
            work.one(name, None)
        for name, entry in sorted(diff.made.items()):
            work.one(name, entry)
        if tree is not None:
            work.audit(tree, before, quarantine or Quarantine())
        return work.applied()


class _DiffWriter:
    def __init__(
        self,
        root: Root,
        diff: ReceivedDiff,
        fill: Callable[[TreeEntry, int], object],
        policy: ConflictPolicy,
        judge: Judge,
    ) -> None:
        self._root = root
        self._judge = judge
        self._diff = diff
        self._fill = fill
        self._policy = policy
        self._notes = _Notes(left_out=[*diff.left_out], left_count=diff.left_count)
        self._unknown = ""

    def one(self, path: str, entry: TreeEntry | None) -> None:
        """Write one change, or note why it was not written."""
        why = self._judge.objection(path, *_judged(entry))
        if why:
            self._notes.leave_out(path, why)
            return
        try:
            for attempt in range(ATTEMPTS):
                try:
                    self._write(path, entry)
                    return
                except (MovedOn, UnstableFile):  # another process writes here: read the path again
                    if attempt + 1 == ATTEMPTS:
                        self._notes.leave_out(path, "it changes here while it is written")
        except OSError as error:
            self._notes.leave_out(path, said(error))

    def _write(self, path: str, entry: TreeEntry | None) -> None:
        try:
            parent = self._root.parent(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV):
                raise
            if entry is None:
                self._settle(path, None)
            else:
                self._notes.leave_out(path, "its directory is not here")
            return
        try:
            self._write_in(parent, path, entry)
        finally:
            os.close(parent)

    def _write_in(self, parent: int, path: str, entry: TreeEntry | None) -> None:
        here = self._here(path, entry)
        if not here.is_other and (entry is None if here.entry is None else here.entry.is_like(entry)):
            self._settle(path, entry)
            return
        if not here.is_as(self._diff.expected.get(path)):
            self._conflict(parent, path, entry, here, "")
            return
        try:
            self._put(parent, path, entry, here)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self._conflict(parent, path, entry, here, "the directory has other files")
            return
        self._note(path, entry, here)

    def _put(self, parent: int, path: str, entry: TreeEntry | None, here: _Here) -> None:
        """Replace what is here with the entry. Raises MovedOn, and OSError with ENOTEMPTY for a directory that
        has files."""
        name = os.path.basename(path)
        if here.kind == "directory":
            if entry is not None and entry.kind == "directory":
                return
            os.rmdir(name, dir_fd=parent)
            here = _Here(None, None)
        elif here.facts is not None and (entry is None or entry.kind == "directory"):
            remove(parent, name, here.facts)
        if entry is None:
            return
        if entry.kind == "directory":
            make_directory(parent, name)
        else:
            place(parent, entry, here.facts, lambda fd: self._fill(entry, fd))

    def _conflict(self, parent: int, path: str, entry: TreeEntry | None, here: _Here, why: str) -> None:
        """Report a conflict, and do what the policy says."""
        kept: Literal["ours", "theirs"] = "ours"
        beside = ""
        if self._policy == "theirs" and not here.is_other and not why:
            try:
                self._put(parent, path, entry, here)
                kept = "theirs"
            except OSError as error:
                why = said(error)
        elif self._policy == "beside" and entry is not None and entry.kind != "directory":
            beside = self._put_beside(parent, entry)
        self._notes.conflicts.append(
            FileConflict(
                path=_text(path),
                base=_version(self._diff.base.get(path)),
                ours=here.version,
                theirs=_version(entry),
                kept=kept,
                beside=_text(beside),
                why=why or "it has been changed here too",
            )
        )
        if kept == "theirs":
            self._notes.settled.append(path)

    def _put_beside(self, parent: int, entry: TreeEntry) -> str:
        """Write the entry beside its place, unless an earlier return has. Returns the path; "" if there is no free
        name."""
        for number in range(1, MOST_BESIDE):
            path = entry.path + BESIDE + (f"-{number}" if number > 1 else "")
            if self._judge.objection(path, *_judged(entry)):
                return ""
            if self._here(path, entry).is_as(entry):
                return path
            try:
                place(parent, entry._replace(path=path), None, lambda fd: self._fill(entry, fd))
            except MovedOn:
                continue
            return path
        return ""

    def _here(self, path: str, entry: TreeEntry | None) -> _Here:
        """The present state of a path. A large file whose size differs from both versions is not read. Raises
        UnstableFile."""
        try:
            facts = Facts.of(self._root.stat(path))
        except FileNotFoundError:
            return _Here(None, None)
        if not (stat.S_ISREG(facts.mode) or stat.S_ISDIR(facts.mode) or stat.S_ISLNK(facts.mode)):
            return _Here(None, facts, is_other=True)
        sizes = [each.size for each in (entry, self._diff.expected.get(path)) if each is not None]
        if stat.S_ISREG(facts.mode) and facts.size > MOST_READ and facts.size not in sizes:
            return _Here(TreeEntry(path, "file", facts.mode & 0o777, facts.size), facts)
        return _Here(digested(self._root, path, facts), facts)

    def _settle(self, path: str, entry: TreeEntry | None) -> None:
        """Note a path that has the same state here and on the node, without a write."""
        self._notes.settled.append(path)
        if entry is None and path not in self._diff.expected and self._is_file(path):
            self._notes.deleted.append(path)  # a file of the base directory, to which nothing is written

    def _note(self, path: str, entry: TreeEntry | None, here: _Here) -> None:
        self._notes.settled.append(path)
        if entry is None:
            if here.kind != "directory":
                self._notes.deleted.append(path)
        elif entry.kind != "directory":
            (self._notes.created if path not in self._diff.base else self._notes.changed).append(path)

    def _is_file(self, path: str) -> bool:
        base = self._diff.base.get(path)
        return base is not None and base.kind != "directory"

    def audit(self, tree: ProtectedTree, before: Look, quarantine: Quarantine) -> None:
        """Move away what lies here and has a protected name only since the changes were written."""
        settled = tree.settle(before, quarantine)
        for finding in settled.findings:
            path = os.path.relpath(finding.path, tree.root)
            done = "it was moved out of the workspace" if finding.place else "it could not be moved away"
            if finding.what == "cut":
                done = "the other settings were kept"
            self._notes.leave_out(path, f"the name {finding.name} is protected now: {finding.why}; {done}")
        self._unknown = settled.unknown or settled.stuck

    def applied(self) -> ApplyReport:
        """The report."""
        notes = self._notes
        report = WorkspaceReturn(
            created=_texts(notes.created),
            changed=_texts(notes.changed),
            deleted=_texts(sorted(notes.deleted)),
            conflicts=tuple(notes.conflicts),
            left_out=tuple(LeftOut(path=_text(path), why=why) for path, why in notes.left_out[:MOST_LISTED]),
            left_out_count=notes.left_count,
            unknown=self._diff.unknown or self._unknown,
        )
        return ApplyReport(report, tuple(notes.settled))


def _judged(entry: TreeEntry | None) -> tuple[str, bytes]:
    """The kind of an entry, and the target of a link."""
    return ("", b"") if entry is None else (entry.kind, entry.content if entry.kind == "link" else b"")


def _version(entry: TreeEntry | None) -> FileVersion | None:
    if entry is None:
        return None
    match entry.kind:
        case "file":
            digest = f"sha256:{entry.content.hex()}" if entry.content else ""
            return FileVersion(kind="file", size=entry.size, digest=digest, executable=entry.is_executable)
        case "link":
            return FileVersion(kind="link", target=_text(os.fsdecode(entry.content)))
        case "directory":
            return FileVersion(kind="directory")


def _text(path: str) -> str:
    """A path that can be encoded: bytes that are not UTF-8 are escaped."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _texts(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(_text, paths))
