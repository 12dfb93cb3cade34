"""Whether a directory shows a part of another one: by its path, by links, or by a mount of the same file system."""

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from toolcell_sandbox.profile import is_below

_MOST_LINKS = 40  # as the kernel's bound (path_resolution(7))


class _Place(NamedTuple):
    """A directory of a file system, wherever it is mounted. Bind mounts of it have the same place."""

    device: str
    path: str


class _Mount(NamedTuple):
    """A line of /proc/self/mountinfo, see proc_pid_mountinfo(5). `layers` are the directories of an overlay."""

    place: _Place
    at: str
    layers: tuple[str, ...]


def overlaps(directory: str, own: str) -> bool:
    """Whether a bind of `directory`, with all mounts below it, shows a part of `own`. Both are real paths."""
    return is_below(directory, [own]) or is_below(own, [directory]) or _share_a_mount(directory, own, _mountinfo())


@lru_cache(256)
def _share_a_mount(directory: str, own: str, mountinfo: str) -> bool:
    mounts = _mounts(mountinfo)
    shown, kept = list(_places(directory, mounts)), list(_places(own, mounts))
    return any(
        mine.device == other.device and (is_below(mine.path, [other.path]) or is_below(other.path, [mine.path]))
        for mine in kept
        for other in shown
    )


def links_to(path: str) -> list[str]:
    """The symbolic links that an absolute path passes. Who can replace one of them decides where the path leads."""
    found: list[str] = []
    here, rest = "/", path.split("/")[::-1]
    while rest and len(found) < _MOST_LINKS:
        part = rest.pop()
        if part in ("", "."):
            continue
        place = os.path.dirname(here) if part == ".." else os.path.join(here, part)
        try:
            target = os.readlink(place)
        except OSError:  # no link, or nothing at all
            here = place
            continue
        found.append(place)
        here = "/" if target.startswith("/") else here
        rest += target.split("/")[::-1]
    return found


def _places(directory: str, mounts: tuple[_Mount, ...]) -> Iterator[_Place]:
    """The place of a directory, and those of all mounts below it."""
    yield from _of(directory, mounts)
    for mount in mounts:
        if mount.at != directory and is_below(mount.at, [directory]):
            yield mount.place
            for layer in mount.layers:
                yield from _of(layer, mounts)


def _of(directory: str, mounts: tuple[_Mount, ...]) -> Iterator[_Place]:
    """The place of a directory; in an overlay, also those of the directories that it is made of."""
    around = [mount for mount in mounts if is_below(directory, [mount.at])]
    if not around:
        return
    mount = max(around, key=lambda each: len(each.at.rstrip("/")))  # the last of those that are equal hides the others
    mount = [each for each in around if each.at == mount.at][-1]
    inner = os.path.relpath(directory, mount.at)
    yield _Place(mount.place.device, os.path.normpath(os.path.join(mount.place.path, inner)))
    for layer in mount.layers:
        below = os.path.normpath(os.path.join(layer, inner))
        if not is_below(below, [mount.at]):
            yield from _of(below, mounts)


def _mountinfo() -> str:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


@lru_cache(4)
def _mounts(text: str) -> tuple[_Mount, ...]:
    found: list[_Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        _id, _parent, device, root, at = before.split(" ")[:5]
        kind, _source, options = after.split(" ", 2)
        layers = tuple(_layers(options)) if kind == "overlay" else ()
        found.append(_Mount(_Place(device, _plain(root)), _plain(at), layers))
    return tuple(found)


def _layers(options: str) -> Iterator[str]:
    for option in options.split(","):
        name, _, value = option.partition("=")
        if name in ("lowerdir", "upperdir", "lowerdir+"):
            yield from (_plain(each) for each in value.split(":") if each.startswith("/"))


def _plain(text: str) -> str:
    """The text without the octal escapes of mountinfo, such as `\\040` for a space."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
