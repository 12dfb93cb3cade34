"""The manifest of a tree: its entries, with the digests of their contents. It is sent as msgpack."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, cast

from toolcell.cluster.link import pack, unpack
from toolcell.workplaces.listing import TreeEntry

__all__ = ["TreeManifest"]


class TreeManifest:
    """The entries of a tree, by path. A directory comes before its entries."""

    def __init__(self, entries: Iterable[TreeEntry]) -> None:
        self.entries: dict[str, TreeEntry] = {each.path: each for each in sorted(entries)}
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
        made = cls(map(TreeEntry.from_wire, cast("list[list[Any]]", unpack(raw))))
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
