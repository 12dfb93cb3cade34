"""A module's source and its digest: the supervisor notes it, and a cell holds what it imports against it."""

import os
import stat
from collections.abc import Iterable

MAX_SOURCE_BYTES = 64 * 1024 * 1024


def source_files(module: str) -> list[str]:
    """The source of a module or package at this path without its suffix; nothing where there is neither."""
    if os.path.isfile(module + ".py"):
        return [module + ".py"]
    if not os.path.isfile(os.path.join(module, "__init__.py")):
        return []
    found: list[str] = []
    for where, _directories, names in os.walk(module):
        found += [os.path.join(where, name) for name in names if name.endswith(".py")]
    return sorted(found)


def source_digest(files: Iterable[str]) -> str:
    """Of the source, so that another text is another tool. ValueError for what is no source or too much of it."""
    import hashlib  # 5 ms of OpenSSL that most cells never need

    digest, total = hashlib.sha256(), 0
    for file in files:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):  # a FIFO would be waited for
                raise ValueError(f"{file} is not a regular file")
            text = source.read(MAX_SOURCE_BYTES - total + 1)
        total += len(text)
        if total > MAX_SOURCE_BYTES:
            raise ValueError(f"it is over {MAX_SOURCE_BYTES:,} bytes")
        digest.update(b"%d\0" % len(text) + text)
    return digest.hexdigest()
