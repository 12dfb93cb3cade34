"""A timer of the kernel that kills this process, even if it is stopped or its event loop is blocked."""

import ctypes
import signal
import time
from typing import Final

from toolcell_sandbox.kernel.syscalls import syscall

__all__ = ["KillTimer", "clock_s"]

_CLOCK: Final = time.CLOCK_BOOTTIME  # unlike CLOCK_MONOTONIC, it includes the time in which the machine was suspended
_SIGEV_SIGNAL: Final = 0
_TIMER_ABSTIME: Final = 1
_SPENT_NS: Final = 1
"""The expiry, in nanoseconds after the boot, of a time that has passed. 0 would disarm the timer."""


class _SigEvent(ctypes.Structure):
    """struct sigevent, 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _TimerId(ctypes.Structure):
    """timer_t of the kernel."""

    _fields_ = (("number", ctypes.c_int),)


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: the period, and the first expiry."""

    _fields_ = (
        ("period_s", ctypes.c_long),
        ("period_ns", ctypes.c_long),
        ("expiry_s", ctypes.c_long),
        ("expiry_ns", ctypes.c_long),
    )


def clock_s() -> float:
    """The time of the timer's clock, in seconds."""
    return time.clock_gettime(_CLOCK)


class KillTimer:
    """Sends SIGKILL to this process at the time of the last `set`: see timer_create(2). Raises SandboxError if the
    kernel has no timer left."""

    def __init__(self) -> None:
        made = _TimerId()
        event = _SigEvent(None, signal.SIGKILL, _SIGEV_SIGNAL, b"")
        syscall("timer_create", _CLOCK, event, made, step="timer_create")
        self._timer = int(made.number)

    def set(self, at_s: float | None) -> None:
        """Kill this process at this time of `clock_s`. None: do not."""
        at_ns = 0 if at_s is None else max(_SPENT_NS, int(at_s * 1e9))
        spec = _TimerSpec(0, 0, *divmod(at_ns, 1_000_000_000))
        syscall("timer_settime", self._timer, _TIMER_ABSTIME, spec, None, step="timer_settime")
