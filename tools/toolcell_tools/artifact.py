"""Artifacts: files that a call made or changed, recorded by the tool, a handle or the supervisor."""

import os
import stat
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Artifact", "ArtifactLog", "digest_of"]


def digest_of(raw: bytes) -> str:
    """The SHA-256 of `raw` as artifacts write it: `sha256:<hex>`."""
    from hashlib import sha256  # 5 ms of OpenSSL that most cells never need

    return f"sha256:{sha256(raw).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file or record that a call made or changed.

    `path` is relative to the workspace; for kind "memory" it is the record's id. `kind` is "created", "modified",
    "deleted", "memory", "output" (the full text of an output too long for a model), "stdout" or "stderr" (the full
    stream, of which the result keeps both ends) or a word of the tool's own. `digest` is "sha256:<hex>" and `size` is
    in bytes, both if known. `media_type` is a MIME type. `data` is the content in base64, for an artifact without a
    file. `uri` says where the supervisor put the file ("file:…"); a tool cannot set it. `diff` is a
    unified diff of a small text that the supervisor has found changed. Raises ValueError if `data` is
    not base64 or does not match `digest` and `size`.
    """

    path: str
    kind: str
    digest: str | None = None
    size: int | None = None
    media_type: str | None = None
    data: str | None = None
    uri: str | None = None
    diff: str | None = None

    def __post_init__(self) -> None:
        if self.data is not None:
            self._checked(_decoded(self.path, self.data))

    @classmethod
    def from_bytes(cls, path: str, raw: bytes, media_type: str, kind: str = "inline") -> "Artifact":
        """An artifact that holds `raw` itself. `path` is a name for people. `raw` counts towards the result's size."""
        return cls(path, kind, digest_of(raw), len(raw), media_type, b64encode(raw).decode("ascii"))

    def read(self) -> bytes:
        """The content, from `data` or from the file at `uri`. For the supervisor's process, not for a cell.

        Raises ValueError if there is neither `data` nor `uri`, or if the content no longer matches `digest`. Raises
        OSError if the file is gone. A file that a tool made has neither: read it below `session.workspace`.
        """
        if self.data is not None:
            return _decoded(self.path, self.data)
        from urllib.parse import unquote, urlsplit

        where = urlsplit(self.uri or "")
        if where.scheme != "file":
            raise ValueError(f"The artifact {self.path!r} has no content of its own. Read it below the workspace.")
        with os.fdopen(_opened(unquote(where.path)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size != self.size:
                raise ValueError(f"The file of artifact {self.path!r} is not the one that the supervisor wrote.")
            return self._checked(file.read(status.st_size + 1))  # one byte more: the file may be growing

    def _checked(self, raw: bytes) -> bytes:
        if self.size not in (None, len(raw)) or self.digest not in (None, digest_of(raw)):
            raise ValueError(f"The content of artifact {self.path!r} is not what its size and digest say.")
        return raw


def _opened(path: str) -> int:
    """Open a file by its absolute path without following a link: a tool may have put one into the path."""
    *above, name = path.strip("/").split("/")
    at = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        for part in above:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


def _decoded(path: str, data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError as error:
        raise ValueError(f"The data of artifact {path!r} is not base64: {error}. Use Artifact.from_bytes.") from None


class ArtifactLog:
    """The net effect of a series of changes to files: one artifact for each path, in the order of the first change."""

    __slots__ = ("_by_path",)

    def __init__(self) -> None:
        self._by_path: dict[str, Artifact] = {}

    def record(self, artifact: Artifact) -> Artifact:
        """Record a change and return the path's net artifact: a file created and then modified counts as created."""
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
        net = replace(artifact, kind=kind)
        self._by_path[artifact.path] = net
        return net

    @property
    def artifacts(self) -> list[Artifact]:
        return list(self._by_path.values())


def merged(declared: Iterable[Artifact], recorded: Iterable[Artifact]) -> list[Artifact]:
    """`declared`, then the artifacts of `recorded` whose paths are not among it."""
    result = list(declared)
    named = {artifact.path for artifact in result}
    result.extend(artifact for artifact in recorded if artifact.path not in named)
    return result
