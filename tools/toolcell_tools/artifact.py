"""Artifacts: what a call left behind, as the tool or a handle recorded it."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Artifact", "ArtifactLog"]


@dataclass(frozen=True, slots=True)
class Artifact:
    """One thing a call made or changed.

    `path` is relative to the workspace for files and the record's id for kind "memory"; `kind` is "created",
    "modified", "deleted", "memory" or the tool's own word; `digest` is "sha256:<hex>" and `size` bytes, if known.
    """

    path: str
    kind: str
    digest: str | None = None
    size: int | None = None


class ArtifactLog:
    """The net effect on files of a run of changes: one artifact a path, in the order of the first change."""

    __slots__ = ("_by_path",)

    def __init__(self) -> None:
        self._by_path: dict[str, Artifact] = {}

    def record(self, artifact: Artifact) -> Artifact:
        """Note a change and return its net artifact: a file created and then modified was, after all, created."""
        before = self._by_path.get(artifact.path)
        kind = artifact.kind
        if before is not None:
            if before.kind == "created" and kind == "deleted":
                del self._by_path[artifact.path]
                return artifact
            if before.kind == "created":
                kind = "created"
            elif before.kind == "deleted" and kind == "created":
                kind = "modified"
        net = Artifact(artifact.path, kind, artifact.digest, artifact.size)
        self._by_path[artifact.path] = net
        return net

    @property
    def artifacts(self) -> list[Artifact]:
        return list(self._by_path.values())


def merged(declared: Iterable[Artifact], recorded: Iterable[Artifact]) -> list[Artifact]:
    """`declared` and whatever of `recorded` it does not mention by path."""
    result = list(declared)
    named = {artifact.path for artifact in result}
    result.extend(artifact for artifact in recorded if artifact.path not in named)
    return result
