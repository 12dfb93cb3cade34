"""The audit of protected names after a call: its findings, its notices, and the longer check if it was cut short."""

import errno
import logging
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from toolcell.pool.cell import Cell
from toolcell.pool.run import Run
from toolcell.sessions.protection import Guarded, Protection, Watch, overlap
from toolcell.store.journal import Journal, Record
from toolcell.workplaces.cleanup import Audited
from toolcell_sandbox.profile import CellProfile, is_below
from toolcell_sandbox.trees.audit import Finding, together
from toolcell_sandbox.trees.facts import NAME_CHARS
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import PermissionDenied
from toolcell_tools.preview import printable as escaped
from toolcell_tools.result import Notice, ToolResult

from .services import Services

_log = logging.getLogger("toolcell")
MAX_TOLD = 5
_REFUSED = re.compile(f"{os.strerror(errno.EBUSY)}|{os.strerror(errno.EROFS)}")
SHOWN_CHARS = 1_000  # shown of a path; a call can make a path of any length
MAX_RECORDED = 1_000  # findings per call; a call can make a million files, which must not fill the journal


async def audit(
    services: Services, run: Run, guarded: Guarded, watch: Watch, last: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Find out what the call did to protected names, after all its processes are gone, and record it. `last` is called
    before another call may start that must not overlap."""
    assert run.gone is not None  # every watched call has it
    await run.gone.wait()
    with anyio.CancelScope(shield=True):
        try:
            if await guarded.leave(watch) and watch.tells:
                record_findings(services.journal, watch)
            await _leave_kept_that_never_was(services, guarded)
            if last is not None:
                await last()
        finally:
            services.pool.release(run)
    if watch.unknown:
        about = run.tool, run.spec.key.session_id, run.call_id
        services.in_background(_sweep, services.journal, [guarded], about)


async def _leave_kept_that_never_was(services: Services, guarded: Guarded) -> None:
    """Drop the state from before a kept process that was expected and does not exist."""
    protection = services.protection
    if protection.awaits_kept and not guarded.watches:
        living = services.pool.kept_writable()
        if not any(overlap(guarded.writable, each) for each in living):
            await protection.leave_kept(guarded.writable, living)


async def _sweep(journal: Journal, guards: Sequence[Guarded], about: tuple[str, str, str]) -> None:
    """Run the longer check in the background, and record its findings. `about` is a call: tool, session and id."""
    with anyio.CancelScope(shield=True):
        settled = together([await guarded.look_on() for guarded in guards])
        if settled.unknown:
            _log.warning("the background check after call %s is incomplete: %s", about[2], settled.unknown)
        watch = Watch(findings=list(settled.findings), unknown=settled.unknown, stuck=settled.stuck)
        if watch.tells:
            _record(journal, watch, *about)


def record_findings(journal: Journal, watch: Watch) -> None:
    """Write one record with all findings of a call's audit."""
    run = watch.run
    assert run is not None
    _record(journal, watch, run.tool, run.spec.key.session_id, run.call_id)


async def audit_kept(
    protection: Protection,
    journal: Journal,
    cell: Cell,
    living: Sequence[tuple[str, ...]],
    in_background: Callable[..., None],
) -> None:
    """After a kept process is gone, find out what it did to protected names after its last call, and record it."""
    about = cell.spec.key.kept_tool, cell.spec.key.session_id, cell.last_call_id
    with anyio.CancelScope(shield=True):
        watch, guards = await protection.leave_kept(cell.spec.profile.writable, living)
        if watch.tells:
            _record(journal, watch, *about)
        if watch.unknown:
            in_background(_sweep, journal, guards, about)


def _record(journal: Journal, watch: Watch, tool: str, session_id: str, call_id: str) -> None:
    journal.write(Record("quarantined", session_id, call_id, {"tool": tool, **audit_data(watch)}))


def unchecked(watch: Watch) -> Notice:
    """The notice for a call whose audit was incomplete."""
    follows = (
        "A longer check runs now and moves protected names that this call made out of the workspace."
        if watch.looked_for
        else "No longer check follows, because the directory that was there before the call is no longer in its place."
    )
    message = f"The check of the workspace for protected names is incomplete: {watch.unknown}. {follows}"
    return Notice(kind="unchecked", message=message)


def trespass(
    workspace: Path, declaration: ToolDeclaration, profile: CellProfile, watch: Watch
) -> PermissionDenied | None:
    """The error that replaces a call's result if its profile denies what the audit found; otherwise None.

    A call answers for each finding that it can have made, unless a call of another session can have made it too.
    """
    if any(each.what != "redirected" for each in watch.findings) and watch.sole and profile.quarantined == "deny":
        message = f"The call is not accepted. {quarantined(workspace, profile, watch).message}"
        names = ", ".join(dict.fromkeys(repr(finding.name) for finding in watch.findings[:MAX_TOLD]))
        return PermissionDenied(message=message, tier=declaration.tier, reason=f"protected names: {names}")
    if watch.unknown and profile.unchecked == "deny":
        message = f"The call is not accepted. {unchecked(watch).message}"
        return PermissionDenied(message=message, tier=declaration.tier, reason=f"unchecked: {watch.unknown}")
    return None


def quarantined(workspace: Path, profile: CellProfile, watch: Watch) -> Notice:
    """The notice about the protected names that were made or changed while the call ran."""
    roots = sorted(map(os.path.realpath, (str(workspace), *profile.writable)), key=len, reverse=True)
    shown = [_told(finding, roots) for finding in watch.findings[:MAX_TOLD]]
    if len(watch.findings) > MAX_TOLD:
        shown.append(f"and {len(watch.findings) - MAX_TOLD:,} more")
    if any(
        each.place and each.what in ("made", "changed") and _in_work_tree(each) for each in watch.findings[:MAX_TOLD]
    ):
        shown.append("where git tracks one that was moved out, it shows as deleted: do not commit that")
    if dropped := sum(len(each.dropped) for each in watch.findings):
        shown.append(f"older entries of the quarantine that were deleted to keep it within its bounds: {dropped:,}")
    message = f"Protected names were made, changed or moved while the call ran: {'; '.join(shown)}."
    return Notice(kind="protected_name", message=message)


def _in_work_tree(finding: Finding) -> bool:
    """Whether git may track the file: it is in a work tree, and not inside a repository's own directory."""
    if finding.name.startswith(".git/"):
        return False
    above = finding.path
    while (above := os.path.dirname(above)) != "/":
        if os.path.lexists(f"{above}/.git"):
            return True
    return False


def held(workspace: Path, watch: Watch, result: ToolResult) -> Notice | None:
    """A notice that explains an EBUSY or EROFS error if its cause was a mount over a protected name; otherwise None.

    The kernel's message does not name the cause. A program that replaces a file, such as `sed -i`, writes a new file
    and renames it, which fails.
    """
    texts = [result.stderr.text, result.error.message if result.error is not None else ""]
    lines = [line for text in texts for line in text.splitlines() if _REFUSED.search(line)]
    root = f"{os.path.realpath(workspace)}/" if lines else ""
    names = dict.fromkeys(
        "/".join(bound.path.removeprefix(root).rsplit("/", 2)[-2:])
        for bound in (watch.bound if lines else ())
        if not bound.pin
    )
    met = [name for name in names if any(name in line for line in lines)]
    met = met or [name for name in names if (above := os.path.dirname(name)) and any(above in line for line in lines)]
    if not met:
        return None
    shown = ", ".join(map(quoted, met[:MAX_TOLD]))
    message = (
        f"Protected names that were there before the call are held while it runs: {shown}. They cannot be renamed, "
        "replaced or removed, and but for git's settings not written. Change git's settings with git config; a "
        "directory above the repository can be renamed."
    )
    return Notice(kind="protected_name", message=message)


def _told(finding: Finding, roots: Sequence[str]) -> str:
    """One finding for a model: the name below the workspace or another writable path, what was done, and why."""
    root = next((root for root in roots if is_below(finding.path, [root])), os.path.dirname(finding.path))
    path = quoted(os.path.relpath(finding.path, root))
    match finding.what:
        case "moved":
            return f"{path} was put back in its place ({finding.why})"
        case "refused":
            return f"{path} was left as it was, and nothing that the call set in it is kept ({finding.why})"
        case "cut":
            return f"{path} was kept without {finding.why}"
        case "redirected":
            return f"{path} was kept, but git fetch and git push may go elsewhere by it now: it changes {finding.why}"
        case "removed" if finding.place:
            return f"{path}, of which a part could not be removed by the call, is removed now ({finding.why})"
        case _:
            away = "was moved out of the workspace" if finding.place else "could not be moved away"
            return f"{path} {away} ({finding.why})"


def quoted(name: str) -> str:
    """A name that a program chose, for a model: in quotes, escaped, at most `NAME_CHARS` characters."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    text = escaped(text.replace("\\", "\\\\").replace("'", "\\'"))
    return f"'{text if len(text) <= NAME_CHARS else f'{text[: NAME_CHARS - 33]}…{text[-32:]}'}'"


def said(finding: Finding) -> str:
    """One finding in a few words, for people."""
    path, place = printable(finding.path), printable(finding.place)
    if finding.what == "moved":
        return f"{path} was moved away, and was put back"
    if finding.what == "refused":
        return f"a change of {path} was refused: {finding.why}"
    if finding.what == "cut":
        return f"{path} was kept without {finding.why}"
    if finding.what == "redirected":
        return f"the remotes in {path} were changed: {finding.why}"
    return f"{path} was {finding.what}, and {f'was moved to {place}' if place else 'could not be moved away'}"


def audit_data(audited: Watch | Audited) -> dict[str, Any]:
    """The first `MAX_RECORDED` findings of an audit, for the journal."""
    findings = [
        {
            "path": printable(each.path),
            "name": each.name,
            "what": each.what,
            "why": each.why,
            "place": printable(each.place),
        }
        for each in audited.findings[:MAX_RECORDED]
    ]
    dropped = [printable(path) for each in audited.findings for path in each.dropped][:MAX_RECORDED]
    return {
        "found": len(audited.findings), "findings": findings, "dropped": dropped, "unchecked": audited.unknown,
        "stuck": audited.stuck
    }  # fmt: skip


def printable(path: str) -> str:
    """A path as text. Unprintable characters and undecodable bytes are escaped. The middle of a long path is left
    out."""
    text = escaped(os.fsencode(path).decode("utf-8", "backslashreplace"))
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS // 2]}…{text[-SHOWN_CHARS // 2 :]}"
