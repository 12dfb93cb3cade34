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
from toolcell.store.files import OpenDirectory, write_file

EACH_S: Final = 1.0
_log = logging.getLogger("toolcell")


async def keep_status(path: Path, status: Callable[[], dict[str, Any]]) -> None:
    """Write the status into the file once a second, until cancelled. A failure is logged once. The
    directory is opened once: if it is moved, its old path may belong to another supervisor."""
    directory, failed = OpenDirectory(path.parent), False
    try:
        while True:
            try:
                text = json.dumps({"at": time.time(), "pid": os.getpid(), **status()}, default=str)
                await in_thread(partial(_replace, directory, path.name, text), abandon=True)  # a file system may hang
                failed = False
            except Exception:  # such as a full disk; the supervisor works on without a status
                if not failed:
                    _log.exception("the status cannot be written to %s", path)
                failed = True
            await anyio.sleep(EACH_S)
    finally:
        directory.close()


def _replace(directory: OpenDirectory, name: str, text: str) -> None:
    beside = f".{name}.new"
    with directory as fd:
        write_file(beside, text.encode("utf-8", "replace"), at=fd, durable=False)
        os.replace(beside, name, src_dir_fd=fd, dst_dir_fd=fd)
