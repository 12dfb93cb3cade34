"""The manifest of a tree: its entries, with the digests of their contents. It is sent as msgpack."""

import stat
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, cast

from toolcell.cluster.link import pack, unpack

__all__ = ["MAX_PATH_BYTES", "SentEntry", "SentKind", "TreeManifest", "is_sound"]

SentKind = Literal["file", "directory", "link"]
_CODES: Final[Mapping[SentKind, int]] = {"file": 0, "directory": 1, "link": 2}
_KINDS: Final[Mapping[int, SentKind]] = {code: kind for kind, code in _CODES.items()}
MAX_PATH_BYTES: Final = 3_000
"""The longest path below the workspace, in bytes. Together with a node's directory, it fits PATH_MAX (4,096)."""
MAX_DEPTH: Final = 100
_MODE_BITS: Final = 0o777
_MOST_NS: Final = 1 << 62
"""The latest time of a file, in the year 2116. Some file systems have times beyond 64 bits of nanoseconds."""


class SentEntry(NamedTuple):
    """An entry of a tree. `path` is relative. `content` is the SHA-256 of a file, or the target of a link. `mode` has
    permission bits only: set-uid, set-gid and sticky bits are never sent."""

    path: str
    kind: SentKind
    mode: int = 0
    size: int = 0
    content: bytes = b""
    modified_ns: int = 0

    @property
    def is_executable(self) -> bool:
        return self.kind == "file" and bool(self.mode & stat.S_IXUSR)

    def is_like(self, other: "SentEntry | None") -> bool:
        """Whether both have the same kind, content and executability. Other permissions and times do not matter."""
        return (
            other is not None
            and (self.kind, self.content) == (other.kind, other.content)
            and self.is_executable == other.is_executable
        )

    def to_wire(self) -> list[Any]:
        """As msgpack carries it."""
        modified_ns = max(-_MOST_NS, min(self.modified_ns, _MOST_NS))
        return [self.path, _CODES[self.kind], self.mode, self.size, self.content, modified_ns]

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> "SentEntry":
        """The inverse of `to_wire`. Raises ValueError for an entry that no tree can have."""
        path, code, mode, size, content, modified_ns = wire
        kind = _KINDS.get(code)
        if kind is None or not is_sound(path) or (kind == "file" and len(content) != 32) or size < 0:
            raise ValueError(f"this is no entry of a tree: {wire!r:.200}")
        return cls(path, kind, mode & _MODE_BITS, size, content, modified_ns)


def is_sound(path: object) -> bool:
    """Whether the path stays below the directory that it is relative to, and is within the bounds."""
    if not isinstance(path, str) or not path or "\0" in path or path.count("/") >= MAX_DEPTH:
        return False
    try:
        if len(path.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES:
            return False
    except UnicodeEncodeError:
        return False
    return not any(part in ("", ".", "..") for part in path.split("/"))


class TreeManifest:
    """The entries of a tree, by path. A directory comes before its entries."""

    def __init__(self, entries: Iterable[SentEntry]) -> None:
        self.entries: dict[str, SentEntry] = {each.path: each for each in sorted(entries)}
        self._packed = self._digest = b""

    def __repr__(self) -> str:
        return f"<TreeManifest {len(self.entries)} entries · {self.total_bytes:,} bytes>"

    @property
    def total_bytes(self) -> int:
        """The sum of the sizes of the files."""
        return sum(each.size for each in self.entries.values() if each.kind == "file")

    @property
    def digests(self) -> set[bytes]:
        """The digests of the files."""
        return {each.content for each in self.entries.values() if each.kind == "file"}

    def packed(self) -> bytes:
        """As msgpack. Its SHA-256 names the tree."""
        if not self._packed:
            self._packed = pack([each.to_wire() for each in self.entries.values()])
        return self._packed

    @property
    def digest(self) -> bytes:
        if not self._digest:
            self._digest = sha256(self.packed()).digest()
        return self._digest

    @classmethod
    def unpacked(cls, raw: bytes) -> "TreeManifest":
        """The inverse of `packed`. Raises ValueError if it is no tree: each entry's directory must be in it."""
        made = cls(map(SentEntry.from_wire, cast("list[list[Any]]", unpack(raw))))
        for path in made.entries:
            above = path.rpartition("/")[0]
            if above and (parent := made.entries.get(above)) is not None and parent.kind == "directory":
                continue
            if above:
                raise ValueError(f"the directory of an entry is not in the tree: {path!r:.200}")
        return made

    def over(self, below: "TreeManifest") -> "TreeManifest":
        """This tree laid over another one. Where both have a path, the entry of this one counts; an entry that is no
        directory hides the other tree's entries below it."""
        merged = dict(below.entries)
        for path, entry in self.entries.items():
            was = merged.get(path)
            if was is not None and was.kind == "directory" and entry.kind != "directory":
                for hidden in [each for each in merged if each.startswith(f"{path}/")]:
                    del merged[hidden]
            merged[path] = entry
        return TreeManifest(merged.values())
