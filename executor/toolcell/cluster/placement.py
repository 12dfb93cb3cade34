"""Choose the node of a session. Pure: facts in, a node out.

A session keeps its node. A new session goes to the node where other sessions work on its workspace. All writers of a
directory are on one node, because the guard of protected names compares overlapping calls. Other sessions go to the
node with the least load among the nodes whose labels fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["NodeFacts", "choose", "fits"]


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
