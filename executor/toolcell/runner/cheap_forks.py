"""Make forks cheaper: each would write to 140 pages for handlers, and build page tables for the interpreter's code.

Handlers of os.register_at_fork are held back until a process needs them. Those of `threading` and `logging` release
locks that other threads held, but before a call runs there are no other threads. That of `random` draws a new seed,
which `call_process.fresh_randomness` does instead.
"""

import ctypes
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

_register = os.register_at_fork
_kept: list[dict[str, Callable[[], object]]] = []


def _keep(**handlers: Callable[[], object]) -> None:
    _kept.append(handlers)


def keep_back() -> None:
    """Hold back handlers from now on. Call this before the import of any module that registers some."""
    os.register_at_fork = _keep  # type: ignore[assignment]
    with suppress(TypeError):
        _register(before=None)  # refused, but the first use sets up its argument parser here, not in each call


def stop() -> None:
    """Register handlers again from now on: those of a tool's module run at every fork, as the module expects."""
    os.register_at_fork = _register


def _before() -> None:
    _run("before", reversed(_kept))  # the last registered runs first (os.register_at_fork)


def _after_in_parent() -> None:
    _run("after_in_parent", _kept)


def _after_in_child() -> None:
    _run("after_in_child", _kept)


def _run(moment: str, registered: Iterable[dict[str, Callable[[], object]]]) -> None:
    for handlers in registered:
        if moment in handlers:
            handlers[moment]()


resume: Callable[[], None] = partial(
    _register, before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
"""The step of a call process, whose tool may start threads and fork, that runs the held-back handlers at each fork."""


def hand_on_code() -> None:
    """Let forks inherit the page tables of the interpreter's and the C library's code. It saves each fork some 40 page
    faults.

    fork(2) copies the page tables of a mapping only if the mapping has a private page (`vma_needs_copy`, mm/memory.c).
    Code has none. So one byte of it is written back through /proc/self/mem, which makes its page private. If the kernel
    refuses that (proc_mem.force_override, Linux 6.12), nothing is saved.
    """
    interpreter, library = ctypes.pythonapi.Py_GetVersion, ctypes.CDLL(None).getpid
    with suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:
        for function in (interpreter, library):
            address = ctypes.cast(function, ctypes.c_void_p).value or 0
            memory.seek(address)
            byte = memory.read(1)
            memory.seek(address)
            memory.write(byte)
