"""The status of a durable supervisor, for other processes: a file in the state directory, written once a second."""

import json
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from toolcell.backends.threads import in_thread

EACH_S: Final = 1.0
_log = logging.getLogger("toolcell")


async def keep_status(path: Path, status: Callable[[], dict[str, Any]]) -> None:
    """Write the status into the file once a second, until cancelled. A failure is logged once. The
    directory is opened once: if it is moved, its old path may belong to another supervisor."""
    directory, failed = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), False
    try:
        while True:
            try:
                text = json.dumps({"at": time.time(), "pid": os.getpid(), **status()}, default=str)
                await in_thread(partial(_replace, directory, path.name, text))
                failed = False
            except Exception:  # such as a full disk; the supervisor works on without a status
                if not failed:
                    _log.exception("the status cannot be written to %s", path)
                failed = True
            await anyio.sleep(EACH_S)
    finally:
        os.close(directory)


def _replace(directory: int, name: str, text: str) -> None:
    beside = f".{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(beside, flags, 0o600, dir_fd=directory), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # the file may be left from before
        file.write(text)
    os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
