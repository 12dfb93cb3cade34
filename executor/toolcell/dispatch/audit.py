"""Protected names after a call: what it did to them, and what it is told."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio

from toolcell.journal import Journal, Record
from toolcell.pool.cell import Cell
from toolcell.pool.run import Run
from toolcell.sessions.protection import Guarded, Protection, Watch
from toolcell.workplaces.cleanup import Audited
from toolcell_sandbox.audit import Finding
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import PermissionDenied

if TYPE_CHECKING:
    from toolcell.session import Session

MAX_TOLD = 5
MAX_RECORDED = 1_000  # a call can make a million files; the journal is to hold more than that one call


async def audit(session: "Session", run: Run, guarded: Guarded, watch: Watch) -> None:
    """When no process of the call is left: see what it did to protected names, and put it on record."""
    pool = session.pool
    assert run.gone is not None  # as for every call that is watched
    await run.gone.wait()
    with anyio.CancelScope(shield=True):
        try:
            if await guarded.leave(watch) and (watch.findings or watch.failure):
                record_findings(session.journal, watch)
        finally:
            pool.release(run)


def record_findings(journal: Journal, watch: Watch) -> None:
    """One record for all that the audit of a call has found."""
    run = watch.run
    assert run is not None
    _record(journal, watch, run.tool, run.spec.key.session_id, run.call_id)


async def audit_kept(protection: Protection, journal: Journal, cell: Cell, living: Sequence[tuple[str, ...]]) -> None:
    """When a process that was kept over calls is gone: see what it did to protected names after its last call."""
    with anyio.CancelScope(shield=True):
        watch = await protection.leave_kept(cell.spec.profile.writable, living)
        if watch.findings or watch.failure:
            key = cell.spec.key
            _record(journal, watch, key.kept_tool, key.session_id, cell.last_call_id)


def _record(journal: Journal, watch: Watch, tool: str, session_id: str, call_id: str) -> None:
    journal.write(Record("quarantined", session_id, call_id, {"tool": tool, **audit_data(watch)}))


def trespass(declaration: ToolDeclaration, watch: Watch) -> PermissionDenied | None:
    """What a call is told that has made or changed protected names; None where it has not."""
    if watch.failure:
        reason = f"what it did to protected names could not be found out: {watch.failure}"
        return PermissionDenied(message=f"The call is not accepted: {reason}", tier=declaration.tier, reason=reason)
    if not watch.findings:
        return None
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
    return f"{path} was {finding.what}, and was moved to {place}" if place else f"{path} was {finding.what}"


def audit_data(audited: Watch | Audited) -> dict[str, Any]:
    """What an audit found for the journal, the first `MAX_RECORDED`."""
    findings = [
        {"path": printable(each.path), "name": each.name, "what": each.what, "place": printable(each.place)}
        for each in audited.findings[:MAX_RECORDED]
    ]
    return {"found": len(audited.findings), "findings": findings, "failure": audited.failure}


def printable(path: str) -> str:
    """A path as text; bytes that are none are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
