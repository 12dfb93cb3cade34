"""The nodes of a driver's sessions. A session is placed at its first call, and keeps its node.

A new session goes to the node where other sessions work on its workspace. All writers of a directory are on one node,
because the guard of protected names compares overlapping calls. Other sessions go to the node with the least load among
the nodes whose labels fit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolcell.pool.run import CellSpec

from .peer import Peer

__all__ = ["Homes", "LabelsOf", "NodeFacts", "choose", "fits"]

LabelsOf = Callable[[Mapping[str, Any]], Mapping[str, str]]
"""Maps the facts of a session (`session_id`, `agent_id`, `ancestors`, `user_id`, `session_kind`, `workspace_root`) to
the labels that its node must have."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts about a node that decide a placement. `calls` run or wait there; `cells` is its bound of cells."""

    id: str
    cells: int
    calls: int
    sessions: int
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    workspaces: frozenset[str] = frozenset()

    @property
    def load(self) -> tuple[float, float]:
        """Calls per cell, then sessions per cell."""
        cells = max(1, self.cells)
        return self.calls / cells, self.sessions / cells


def fits(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether the labels include the wanted ones."""
    return all(labels.get(name) == value for name, value in wanted.items())


def choose(
    nodes: Iterable[NodeFacts], workspace: str, wanted: Mapping[str, str], *, by_workspace: bool = True
) -> str | None:
    """The node for a new session, or None if no node has the wanted labels. The id breaks ties."""
    fitting = [node for node in nodes if fits(node.labels, wanted)]
    if not fitting:
        return None
    if by_workspace:
        for node in fitting:
            if workspace in node.workspaces:
                return node.id
    return min(fitting, key=lambda node: (*node.load, node.id)).id


class Homes:
    """The node of each session that has been placed. `anchor_of` returns the session whose copy of a sent workspace a
    session works in: children go to the node of their parent's copy. By default, each session is its own anchor."""

    def __init__(self, labels: LabelsOf | None, *, by_workspace: bool, anchor_of: Callable[[str], str] | None) -> None:
        self._labels = labels
        self._by_workspace = by_workspace
        self._anchor_of = anchor_of
        self._homes: dict[str, Peer] = {}

    def of(self, session_id: str) -> Peer | None:
        """The node of a session; None if it has none."""
        return self._homes.get(session_id)

    def place(self, spec: CellSpec, ups: Sequence[Peer]) -> Peer | None:
        """Choose the node of a session that has none, for its spec, among `ups`. None if no node fits."""
        id = spec.key.session_id
        anchor = id if self._anchor_of is None else self._anchor_of(id)
        home = self._homes.get(anchor)
        if home is not None:
            self._homes[id] = home
            home.place(id)
            return home
        workspace = str(spec.session.get("workspace_root", spec.cwd))
        chosen = choose(
            [_facts_of(peer, workspace) for peer in ups],
            workspace,
            self._wanted(spec),
            by_workspace=self._by_workspace,
        )
        if chosen is None:
            return None
        home = next(peer for peer in ups if peer.id == chosen)
        for each in {id, anchor}:
            self._homes[each] = home
            home.place(each, workspace)
        return home

    def leave(self, session_id: str) -> Peer | None:
        """Forget a session. Returns the node that it had."""
        home = self._homes.pop(session_id, None)
        if home is not None:
            home.drop(session_id)
        return home

    def lose(self, peer: Peer) -> set[str]:
        """Forget the sessions of a lost node, and return them."""
        sessions = set(peer.sessions)
        peer.drop_all()
        for id in sessions:
            self._homes.pop(id, None)
        return sessions

    def missing_labels(self, specs: Iterable[CellSpec], ups: Sequence[Peer]) -> list[Mapping[str, str]]:
        """The labels that waiting calls need and no node has."""
        if self._labels is None:
            return []
        wanted = [self._wanted(spec) for spec in specs if spec.key.session_id not in self._homes]
        return [each for each in wanted if not any(fits(peer.labels, each) for peer in ups)]

    def _wanted(self, spec: CellSpec) -> Mapping[str, str]:
        return {} if self._labels is None else self._labels(spec.session)


def _facts_of(peer: Peer, workspace: str) -> NodeFacts:
    return NodeFacts(
        id=peer.id,
        cells=peer.told.most_cells if peer.told else 1,
        calls=max(len(peer.runs), peer.told.waiting if peer.told else 0),
        sessions=len(peer.sessions),
        labels=peer.labels,
        workspaces=frozenset((workspace,)) if workspace in peer.workspaces else frozenset(),
    )
