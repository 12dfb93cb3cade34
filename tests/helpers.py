"""What tests of several folders share."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import anyio

PATIENCE_S = 120.0
"""How long to wait for something that must come. It only ends a hang, on a busy machine too."""
DIES_AT_A_STEP = """
import os, sys

left = int(sys.argv[2])

def counted(real):
    def step(*args, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return real(*args, **options)
    return step

for name in ("replace", "unlink", "fsync", "open", "chmod"):
    setattr(os, name, counted(getattr(os, name)))
"""
"""The part of a program after which it dies at its n-th change of files. Its second argument is n, from 0."""


async def until(condition: Callable[[], object]) -> None:
    """Come back when the condition holds; a condition that never will fails the test."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s"
        await anyio.sleep(0.005)


def nest(root: Path, levels: int, name: str = "d" * 100) -> int:
    """Directories in each other, made one by one; the innermost, open."""
    fd = os.open(root, os.O_PATH)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd
