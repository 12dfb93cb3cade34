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
    """Write the status into the file once a second, until cancelled. A failure is logged once."""
    failed = False
    while True:
        try:
            text = json.dumps({"at": time.time(), "pid": os.getpid(), **status()}, default=str)
            await in_thread(partial(_replace, path, text))
            failed = False
        except Exception:  # such as a full disk; the supervisor works on without a status
            if not failed:
                _log.exception("the status cannot be written to %s", path)
            failed = True
        await anyio.sleep(EACH_S)


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, "utf-8")
    beside.chmod(0o600)
    beside.replace(path)
