"""Whether a call may run at all, by its tool's needs and what the session holds; and whether it kept to its limits."""

import os
from typing import Any

from toolcell.sessions.grants import Grants
from toolcell.sessions.protection import Watch
from toolcell_sandbox.audit import Finding
from toolcell_tools.capability import SessionKind
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import PermissionDenied

MAX_TOLD = 5


def denial(declaration: ToolDeclaration, kind: SessionKind, grants: Grants) -> PermissionDenied | None:
    """None where nothing is missing."""
    if not grants.missing:
        return None
    missing = tuple(sorted(grants.missing))
    handles = ", ".join(capability.value for capability in missing)
    return PermissionDenied(
        message=(
            f"The tool {declaration.name!r} needs {handles}, which this {kind.value} session does not hold. "
            "Do without it, or hand the task to the parent session."
        ),
        tier=declaration.tier,
        reason=f"a {kind.value} session holds no {handles} handle",
        missing=missing,
    )


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


def findings_data(watch: Watch) -> list[dict[str, Any]]:
    """The findings for the journal."""
    return [
        {"path": printable(each.path), "name": each.name, "what": each.what, "place": printable(each.place)}
        for each in watch.findings
    ]


def printable(path: str) -> str:
    """A path as text; bytes that are none are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
