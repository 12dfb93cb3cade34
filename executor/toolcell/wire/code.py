"""Identify the code that a process runs: the installation, and the source files of a module.

The zygote is started with -I, so it may find another installation: PYTHONPATH, the user's site-packages and changes of
sys.path affect the supervisor but not the zygote. Of a module that only cells import, the supervisor notes the digest
of the source, and a cell checks it before the import.
"""

import os
import stat
import sys
from collections.abc import Iterable

import toolcell_sandbox
import toolcell_tools

from .messages import VERSION


def running_code() -> dict[str, str]:
    """The code of this process, by name: its Python, the protocol's version, and the path of each package."""
    places = {each.__name__: os.path.realpath(each.__path__[0]) for each in (toolcell_sandbox, toolcell_tools)}
    own = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))
    return {"Python": sys.version, "protocol": str(VERSION), "toolcell": own, **places}


MAX_SOURCE_BYTES = 64 * 1024 * 1024


def source_files(module: str) -> list[str]:
    """The source files of the module or package at this path, which has no suffix. Empty if there is none."""
    if os.path.isfile(module + ".py"):
        return [module + ".py"]
    if not os.path.isfile(os.path.join(module, "__init__.py")):
        return []
    found: list[str] = []
    for where, _directories, names in os.walk(module):
        found += [os.path.join(where, name) for name in names if name.endswith(".py")]
    return sorted(found)


def source_digest(files: Iterable[str]) -> str:
    """The digest of the source files, so that a tool with changed source is another tool. Raises ValueError for an
    invalid or too large source.
    """
    import hashlib  # the import of OpenSSL takes 5 ms, and most cells do not need it

    digest, total = hashlib.sha256(), 0
    for file in files:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):  # the open of a FIFO would wait for a writer
                raise ValueError(f"{file} is not a regular file")
            text = source.read(MAX_SOURCE_BYTES - total + 1)
        total += len(text)
        if total > MAX_SOURCE_BYTES:
            raise ValueError(f"it is over {MAX_SOURCE_BYTES:,} bytes")
        digest.update(b"%d\0" % len(text) + text)
    return digest.hexdigest()
