"""Workspace paths: resolve a model's path below the root, and describe an OSError for a model.

The kernel confines the cell in any case. This layer adds an error message that a model can use.
"""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from .failures import ToolFailure

__all__ = ["failure_of", "failures", "relative", "resolved"]

PATH_BYTES = 4095  # PATH_MAX less its NUL, limits.h
NAME_BYTES = 255  # NAME_MAX


def resolved(root: Path, path: str | os.PathLike[str]) -> Path:
    """The real path that `path` names. Raises ToolFailure unless it lies below `root`, which is itself a real path.

    Relative paths start at the root; absolute paths must lie in it. `..` and symlinks are resolved before the check.
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
    except OSError as failure:  # a symlink loop (before Python 3.13), or a directory without search permission
        raise failure_of(failure, text) from failure
    if real != root and root not in real.parents:
        raise ToolFailure(f"{text!r} is outside the workspace; use a path relative to the workspace root")
    return real


def relative(root: Path, real: Path) -> str:
    """`real`, relative to `root`."""
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
    errno.EOVERFLOW: "its owner is another user than the workspace's; give it to that one first, with chown",
}


def failure_of(error: OSError, path: str) -> ToolFailure:
    """A ToolFailure that explains `error` for `path` and contains no path of the host."""
    words = _WORDS.get(error.errno or 0) or os.strerror(error.errno or errno.EIO).lower()
    return ToolFailure(f"{path!r}: {words}", {"path": path, "errno": errno.errorcode.get(error.errno or 0)})


@contextmanager
def failures(path: str | os.PathLike[str]) -> Generator[None, None, None]:
    """Turn an OSError of the block into the ToolFailure that explains it for `path`."""
    try:
        yield
    except OSError as error:
        raise failure_of(error, os.fspath(path)) from error
