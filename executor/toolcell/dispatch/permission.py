"""Whether a call may run at all: the tool's needs against what the session holds."""

from toolcell.sessions.grants import Grants
from toolcell_tools.capability import SessionKind
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import PermissionDenied


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
