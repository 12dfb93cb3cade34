"""A driver's spec of cells on a node, bound to the directory that is at the path of its workspace."""

import os
import sys
from dataclasses import replace
from typing import Any, Protocol, cast

from toolcell.dispatch.route import NOWHERE, DirectoryIdentity
from toolcell.dispatch.services import Services
from toolcell.pool.run import CellKey, CellSpec
from toolcell.sessions.changes import RemoteRoot, TrackedRoot
from toolcell.sessions.grants import code_roots
from toolcell.sessions.protection import Guarded
from toolcell_sandbox.profile import CellProfile

from .messages import SendSpec
from .node_backends import PlacedBackends
from .node_operations import placed_operations
from .node_run import NodeRun
from .sent.copied_paths import AT_HOME, CopiedPaths, moved_to
from .sent.seat_files import SeatFiles

__all__ = ["NodeSpec"]


class SpecOwner(Protocol):
    """The driver's seat, as its specs see it."""

    @property
    def services(self) -> Services: ...
    @property
    def backends(self) -> PlacedBackends: ...
    @property
    def files(self) -> SeatFiles: ...
    def session_key(self, session_id: str) -> str: ...


class NodeSpec:
    """A driver's spec on this node. The path of its workspace may become another directory."""

    def __init__(self, seat: SpecOwner, sent: SendSpec, tools: tuple[dict[str, Any], ...]) -> None:
        self._services = seat.services
        sent = SendSpec(*_interned(list(sent)))
        self.paths = AT_HOME
        if sent.copy:
            self.paths = CopiedPaths(seat.files.path_of(sent.copy), sent.sent_root)
            sent = moved_to(sent, self.paths.copy)
        self._workspace = sent.workspace
        roots = set(sent.roots)
        profile = CellProfile.from_wire(sent.profile)
        system = tuple(path for path in profile.system if path not in roots)
        self.profile = profile.replace(system=(*system, *code_roots()))
        self._key = CellKey(
            seat.session_key(sent.session_id), frozenset(sent.grants), profile.limits, sent.kept_tool, sent.digest
        )
        self._sent, self._tools = sent._replace(profile={}, roots=[]), tools
        self._place: DirectoryIdentity = NOWHERE
        self._spec: CellSpec | None = None
        self.guarded: Guarded | None = None
        self.operations = placed_operations(seat.backends, sent.placed, sent.grants, sent.pages, sent.session)

    def tracked(self, run: NodeRun) -> TrackedRoot | RemoteRoot | None:
        """The workspace of the spec; None if the changes of the call are not tracked."""
        if not run.most_changes:
            return None
        root = os.path.realpath(self._workspace)
        return self._services.changes.of(root, self._place.identity, texts=run.texts)

    @property
    def session_id(self) -> str:
        return self._sent.session_id

    def spec(self) -> CellSpec:
        """The spec for the directory that is at the path of the workspace now."""
        place = self._place.now(self._workspace)
        if self._spec is None or place.identity != self._place.identity:
            key = replace(self._key, workspace=place.identity)
            self._spec = CellSpec(key, self.profile, self._tools, self._sent.cwd, session=self._sent.session)
            self.guarded = self._services.protection.of(self.profile)
        self._place = place
        return self._spec

    def has_moved(self, run: NodeRun) -> bool:
        return self._place.now(self._workspace).identity != run.spec.key.workspace


def _interned(value: Any) -> Any:
    """The value with its strings interned, because thousands of sessions have almost the same profile."""
    if type(value) is str:
        return sys.intern(value)
    if isinstance(value, list):
        return [_interned(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {_interned(name): _interned(each) for name, each in cast("dict[object, object]", value).items()}
    return value
