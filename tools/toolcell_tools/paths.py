"""Workspace paths: resolve a model's path below the root, and word an OSError for a model.

The kernel confines the cell anyway; this is the layer that refuses with a sentence.
"""

import errno
import os
from pathlib import Path

from .failures import ToolFailure

__all__ = ["failure_of", "relative", "resolved"]

PATH_BYTES = 4095  # PATH_MAX less its NUL, limits.h
NAME_BYTES = 255  # NAME_MAX


def resolved(root: Path, path: str | os.PathLike[str]) -> Path:
    """The real path that `path` names, below `root` (itself real); raises ToolFailure when it is not below it.

    Relative paths start at the root; absolute ones must lie in it. `..` and symlinks are followed, then judged.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise ToolFailure("the path contains a NUL character; remove it")
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        raise ToolFailure("the path is not valid Unicode; send it again without lone surrogates") from None
    if len(encoded) > PATH_BYTES or any(len(name) > NAME_BYTES for name in encoded.split(b"/")):
        raise ToolFailure(
            f"the path is too long: at most {PATH_BYTES:,} bytes in all and {NAME_BYTES} in each name, "
            f"and this one begins {text[:60]!r}"
        )
    try:
        real = Path(os.path.realpath(root / text))
    except OSError as failure:  # a loop of symlinks below 3.13, a directory that cannot be searched
        raise failure_of(failure, text) from failure
    if real != root and root not in real.parents:
        raise ToolFailure(f"{text!r} is outside the workspace; use a path relative to the workspace root")
    return real


def relative(root: Path, real: Path) -> str:
    """`real`, below `root`, as the workspace names it."""
    return real.relative_to(root).as_posix()


_WORDS = {
    errno.ENOENT: "no such file or directory",
    errno.EISDIR: "it is a directory",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "it is read-only here",
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "no space left",
    errno.EFBIG: "the file would be larger than this call may write",
    errno.ELOOP: "too many symbolic links",
    errno.ENOTEMPTY: "the directory is not empty",
    errno.EEXIST: "it exists already",
    errno.EBUSY: "it is protected or in use",
    errno.ENXIO: "it is not a regular file",
}


def failure_of(error: OSError, path: str) -> ToolFailure:
    """The ToolFailure that explains `error` for `path` and names no path of the machine."""
    words = _WORDS.get(error.errno or 0) or os.strerror(error.errno or errno.EIO).lower()
    return ToolFailure(f"{path!r}: {words}", {"path": path, "errno": errno.errorcode.get(error.errno or 0)})
