"""Protected names after a call: what it did to them, what it is told, and the longer look where one was cut short."""

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from toolcell.journal import Journal, Record
from toolcell.pool.cell import Cell
from toolcell.pool.run import Run
from toolcell.sessions.protection import Guarded, Protection, Watch, overlap
from toolcell.workplaces.cleanup import Audited
from toolcell_sandbox.audit import Finding, together
from toolcell_sandbox.profile import Profile
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import PermissionDenied
from toolcell_tools.result import Notice

if TYPE_CHECKING:
    from toolcell.session import Session

_log = logging.getLogger("toolcell")
MAX_TOLD = 5
SHOWN_CHARS = 1_000  # of a path; a call can make one of any length
MAX_RECORDED = 1_000  # a call can make a million files; the journal is to hold more than that one call


async def audit(session: "Session", run: Run, guarded: Guarded, watch: Watch) -> None:
    """When no process of the call is left: see what it did to protected names, and put it on record."""
    pool = session.pool
    assert run.gone is not None  # as for every call that is watched
    await run.gone.wait()
    with anyio.CancelScope(shield=True):
        try:
            if await guarded.leave(watch) and watch.tells:
                record_findings(session.journal, watch)
            await _leave_kept_that_never_was(session, guarded)
        finally:
            pool.release(run)
    if watch.unknown:
        about = run.tool, run.spec.key.session_id, run.call_id
        session.in_background(_sweep, session.journal, [guarded], about)


async def _leave_kept_that_never_was(session: "Session", guarded: Guarded) -> None:
    """Where a kept process was expected and none lives, nothing holds the state from before it any longer."""
    protection = session.supervisor.protection
    if protection.awaits_kept and not guarded.watches:
        living = session.pool.kept_writable()
        if not any(overlap(guarded.writable, each) for each in living):
            await protection.leave_kept(guarded.writable, living)


async def _sweep(journal: Journal, guards: Sequence[Guarded], about: tuple[str, str, str]) -> None:
    """Look longer, behind the calls, and put on record what is found. `about` is a call: tool, session and id."""
    with anyio.CancelScope(shield=True):
        settled = together([await guarded.look_on() for guarded in guards])
        if settled.unknown:
            _log.warning("the background check after call %s is incomplete: %s", about[2], settled.unknown)
        watch = Watch(findings=list(settled.findings), unknown=settled.unknown, stuck=settled.stuck)
        if watch.tells:
            _record(journal, watch, *about)


def record_findings(journal: Journal, watch: Watch) -> None:
    """One record for all that the audit of a call has found."""
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
    """When a process that was kept over calls is gone: see what it did to protected names after its last call."""
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
    """What the result of a call says of which the audit could not see all."""
    message = (
        f"The check of the workspace for protected names is incomplete: {watch.unknown}. A longer check runs now "
        "and moves protected names that this call made out of the workspace."
    )
    return Notice(kind="unchecked", message=message)


def trespass(declaration: ToolDeclaration, profile: Profile, watch: Watch) -> PermissionDenied | None:
    """What a call is told that has made or changed protected names, or that its profile denies; None for any other."""
    if not watch.findings:
        if not watch.unknown or profile.unchecked == "tell":
            return None
        message = f"The call is not accepted. {unchecked(watch).message}"
        return PermissionDenied(message=message, tier=declaration.tier, reason=f"unchecked: {watch.unknown}")
    shown = [said(finding) for finding in watch.findings[:MAX_TOLD]]
    if len(watch.findings) > MAX_TOLD:
        shown.append(f"and {len(watch.findings) - MAX_TOLD:,} more")
    names = ", ".join(dict.fromkeys(repr(finding.name) for finding in watch.findings[:MAX_TOLD]))
    return PermissionDenied(
        message=(
            f"While the call ran, protected names were made or changed: {'; '.join(shown)}. Such files are run later, "
            f"outside of the sandbox. Do without, or ask for the name to be lifted: profile.lifting({names})."
        ),
        tier=declaration.tier,
        reason=f"protected names: {names}",
    )


def said(finding: Finding) -> str:
    """One finding in a few words."""
    path, place = printable(finding.path), printable(finding.place)
    if finding.what == "moved":
        return f"{path} was moved away, and was put back"
    return f"{path} was {finding.what}, and {f'was moved to {place}' if place else 'could not be moved away'}"


def audit_data(audited: Watch | Audited) -> dict[str, Any]:
    """What an audit found for the journal, the first `MAX_RECORDED`."""
    findings = [
        {"path": printable(each.path), "name": each.name, "what": each.what, "place": printable(each.place)}
        for each in audited.findings[:MAX_RECORDED]
    ]
    return {
        "found": len(audited.findings), "findings": findings, "unchecked": audited.unknown, "stuck": audited.stuck
    }  # fmt: skip


def printable(path: str) -> str:
    """A path as text; bytes that are none are escaped, and the middle of a long one is left out."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS // 2]}…{text[-SHOWN_CHARS // 2 :]}"
