"""Translate the paths of a session whose workspace was sent, between the driver's directory and the node's copy."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from toolcell.cluster.messages import SendSpec
from toolcell_sandbox.profile import CellProfile

__all__ = ["AT_HOME", "CopiedPaths", "moved_to"]


class CopiedPaths(NamedTuple):
    """The directory of a copy on this node, and the driver's directory that was copied. Both are empty if the workspace
    was not sent."""

    copy: str = ""
    original: str = ""

    def of_driver(self, path: str) -> str:
        """The driver's path for a path on this node."""
        return self.original + path[len(self.copy) :] if self.copy and f"{path}/".startswith(f"{self.copy}/") else path


AT_HOME = CopiedPaths()


def moved_to(spec: SendSpec, place: str) -> SendSpec:
    """The spec, in which each path at or below the driver's directory becomes the path in the copy at `place`."""
    root = spec.sent_root.rstrip("/")

    def moved(path: str) -> str:
        return place + path[len(root) :] if f"{path}/".startswith(f"{root}/") else path

    profile = CellProfile.from_wire(spec.profile)
    profile = profile.replace(
        readable=tuple(map(moved, profile.readable)),
        writable=tuple(map(moved, profile.writable)),
        cwd=moved(profile.cwd),
    )
    session: Mapping[str, Any] = {**spec.session, "workspace_root": moved(str(spec.session["workspace_root"]))}
    return spec._replace(
        profile=profile.to_wire(), cwd=moved(spec.cwd), session=dict(session), workspace=moved(spec.workspace)
    )
