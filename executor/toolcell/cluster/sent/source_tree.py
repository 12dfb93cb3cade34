"""Read a workspace that will be sent: its manifest, within the bounds, or an error that names its biggest parts."""

import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from toolcell.cluster.sent.manifest import TreeManifest
from toolcell.cluster.sent.options import SentWorkspaces, WorkspaceTooLarge
from toolcell.workplaces.exclusions import Exclusions
from toolcell.workplaces.listing import DigestCache, LeftEntry, TreeEntry, TreeListing, UnstableFile, digested, listed
from toolcell_sandbox.trees.facts import Facts, said, shown
from toolcell_sandbox.trees.walker import Root

__all__ = ["SourceTree", "read_source"]

SCAN_S: Final = 30.0
"""How long the listing of a workspace may take, in seconds."""
SCAN_FURTHER: Final = 10
"""A tree is listed up to this multiple of its bound, so that the error can name its biggest parts."""
PARTS, PART_SHARE = 3, 0.8


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A workspace as it was read. `left_out` are entries that are not sent, such as sockets."""

    root: str
    manifest: TreeManifest
    exclusions: Exclusions
    left_out: tuple[LeftEntry, ...] = ()
    places: Mapping[bytes, str] = field(default_factory=dict[bytes, str])
    """A path of each content."""


def read_source(path: str, options: SentWorkspaces, cache: DigestCache) -> SourceTree:
    """Read the directory at a real path. Raises WorkspaceTooLarge, and OSError if it cannot be listed. Blocks."""
    with Root(path) as root:
        most = options.max_files
        listing = listed(root, options.exclusions, most=most * SCAN_FURTHER, seconds=SCAN_S, ignores=options.gitignore)
        _require_bounds(path, listing, options)
        entries: list[TreeEntry] = []
        places: dict[bytes, str] = {}
        for name in list(listing.facts):
            entry = _entry(root, name, listing, cache)
            if entry is None:
                continue
            entries.append(entry)
            if entry.kind == "file":
                places.setdefault(entry.content, name)
        manifest = TreeManifest(_whole(entries))
        _ = manifest.digest  # computed here, in a thread
        return SourceTree(path, manifest, listing.exclusions, tuple(listing.left_out), places)


def _entry(root: Root, path: str, listing: TreeListing, cache: DigestCache) -> TreeEntry | None:
    """An entry of the listing; None if it was deleted or is left out."""
    try:
        return digested(root, path, listing.facts[path], cache=cache)
    except UnstableFile:
        return _again(root, path, listing)
    except FileNotFoundError:
        return None
    except OSError as error:
        listing.leave_out(path, said(error))
        return None


def _again(root: Root, path: str, listing: TreeListing) -> TreeEntry | None:
    """Read an entry again that changed while it was read."""
    try:
        facts = Facts.of(root.stat(path))
        return digested(root, path, facts) if stat.S_IFMT(facts.mode) == stat.S_IFMT(listing.facts[path].mode) else None
    except FileNotFoundError:
        return None
    except (OSError, UnstableFile):
        listing.leave_out(path, "it changes while it is read")
        return None


def _whole(entries: list[TreeEntry]) -> list[TreeEntry]:
    """The entries whose directories are all there."""
    directories = {each.path for each in entries if each.kind == "directory"}
    whole: list[TreeEntry] = []
    for entry in sorted(entries):
        above = entry.path.rpartition("/")[0]
        if above and above not in directories:
            directories.discard(entry.path)
        else:
            whole.append(entry)
    return whole


def _require_bounds(path: str, listing: TreeListing, options: SentWorkspaces) -> None:
    size, count = listing.total_bytes, len(listing.facts)
    deep = next((each for each in listing.facts if each.count("/") >= options.max_depth), "")
    if deep:
        raise WorkspaceTooLarge(
            f"The workspace {path!r} cannot be sent: it is more than {options.max_depth} directories deep at "
            f"{shown(deep)}. Exclude that directory: SentWorkspaces(exclude=[…]); or raise max_depth, up to 100."
        )
    if not listing.unknown and size <= options.max_bytes and count <= options.max_files:
        return
    by_count = count > options.max_files
    parts = _biggest(listing.facts, by_count=by_count)
    named = ", ".join(f"{shown(part)} ({_amount(held)} in {number:,})" for part, held, number in parts)
    least = "at least " if listing.unknown else ""
    bound = f"max_files={options.max_files:,}" if by_count or listing.unknown else f"max_bytes={options.max_bytes:,}"
    hint = parts[0][0] if parts else "data"
    raise WorkspaceTooLarge(
        f"The workspace {path!r} cannot be sent: it has {least}{_amount(size)} in {count:,} entries, more than "
        f"{bound}. Its biggest parts: {named}. Exclude what the session does not need: "
        f"SentWorkspaces(exclude=[{'/' + hint!r}]); or raise {bound.partition('=')[0]}.",
        parts,
    )


def _biggest(facts: Mapping[str, Facts], *, by_count: bool) -> list[tuple[str, int, int]]:
    """The largest parts. If one entry makes up most of a directory, that entry is named instead."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    below: dict[str, set[str]] = {}
    for path, each in facts.items():
        size = each.size if stat.S_ISREG(each.mode) else 0
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            part = "/".join(parts[:depth])
            sizes[part] += size
            counts[part] += 1
            below.setdefault("/".join(parts[: depth - 1]), set()).add(part)
    weight = counts if by_count else sizes
    chosen: list[tuple[str, int, int]] = []
    for top in sorted(below.get("", ()), key=lambda part: -weight[part])[:PARTS]:
        part = top
        while inside := below.get(part):
            largest = max(inside, key=weight.__getitem__)
            if weight[largest] < PART_SHARE * weight[part] or (by_count and largest not in below):
                break
            part = largest
        chosen.append((part, sizes[part], counts[part]))
    return chosen


def _amount(size: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
