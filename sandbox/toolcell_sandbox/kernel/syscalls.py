"""Raw system calls. Every raw system call of this package uses `syscall` or `attempt`."""

import ctypes
import errno
import os
import signal
from collections.abc import Callable
from functools import partial

from toolcell_sandbox.errors import SandboxError

from .numbers import MACHINE, NUMBERS

Argument = int | bytes | str | None | ctypes.Array[ctypes.c_char] | ctypes.Structure

_libc = ctypes.CDLL(None, use_errno=True)
_clone, _sleep = _libc.clone, _libc.sleep
_HOLDER_S = 5
_CLONE_VM = 0x100

AT_FDCWD = -100
_WRITE_ONLY = os.O_WRONLY | os.O_CLOEXEC
_EXHAUSTED = {
    errno.EAGAIN: "Raise the limit on processes (ulimit -u, or pids.max of the cgroup that this runs in).",
    errno.EMFILE: "Raise the limit on open files (ulimit -n): making a cell takes about 60.",
    errno.ENFILE: "The whole machine is out of open files: raise sysctl fs.file-max.",
}


def _taking(arguments: int) -> Callable[..., int]:
    """syscall(2) with this number of 64-bit arguments, so that flags and negative descriptors are not cut to 32
    bits."""
    function = _libc["syscall"]
    function.restype = ctypes.c_long
    function.argtypes = (ctypes.c_long, *(ctypes.c_void_p,) * arguments)
    return function


_calls = [_taking(arguments) for arguments in range(7)]
_brief = ctypes.CDLL(None)["syscall"]  # it converts integers to 32 bits, and does not save errno
_AS_IT_IS = frozenset((int, bytes, type(None)))


def _convert(argument: Argument) -> object:
    if isinstance(argument, str):
        return os.fsencode(argument)
    return ctypes.byref(argument) if isinstance(argument, ctypes.Structure) else argument


def _number(name: str) -> int:
    number = NUMBERS.get(name)
    if number is None:
        raise SandboxError(
            f"The system call {name} has no known number on this machine: {MACHINE}",
            step=name,
            cure="Use an x86_64 or aarch64 machine.",
        )
    return number


def _converted(arguments: tuple[Argument, ...]) -> tuple[object, ...]:
    return arguments if _AS_IT_IS.issuperset(map(type, arguments)) else tuple(map(_convert, arguments))


def attempt(name: str, *arguments: Argument) -> int:
    """The system call's result, or minus its errno. Raises for no error of the kernel."""
    result = _calls[len(arguments)](_number(name), *_converted(arguments))
    return -ctypes.get_errno() if result == -1 else result


def syscall(name: str, *arguments: Argument, step: str, mechanism: str = "", cure: str = "") -> int:
    """The system call's result. Raises SandboxError, which names `step`, if the kernel refuses."""
    result = attempt(name, *arguments)
    if result < 0:
        raise _refused(-result, step, mechanism, cure)
    return result


def _refused(number: int, step: str, mechanism: str, cure: str) -> SandboxError:
    cure = _EXHAUSTED.get(number, cure)
    return SandboxError(f"{step} failed", step=step, mechanism=mechanism, errno=number, cure=cure)


def prepared(
    name: str,
    *arguments: "int | ctypes.Array[ctypes.c_char] | None",
    step: str,
    mechanism: str = "",
    cure: str = "",
) -> Callable[[], None]:
    """A function that makes this system call, as `syscall` does, but in fewer steps. It takes 32-bit integers and
    buffers. It is for frequent calls, and for forked processes, which must copy each page that they write to.
    """
    call = partial(_brief, _number(name), *arguments)

    def make() -> None:
        if call() == -1:  # errno was not saved: call again for the error
            syscall(name, *arguments, step=step, mechanism=mechanism, cure=cure)

    return make


def fork(step: str) -> int:
    """os.fork. Raises SandboxError, which names `step`, if no more processes are allowed."""
    try:
        return os.fork()
    except OSError as error:
        number = error.errno or 0
        raise SandboxError(f"{step} failed", step=step, errno=number, cure=_EXHAUSTED.get(number, "")) from error


def start_holder(flags: int, stack: "ctypes.Array[ctypes.c_char]", *, step: str, mechanism: str, cure: str) -> int:
    """Start a child in new namespaces by `flags` (clone(2)). It waits to be killed. Returns its pid.

    It runs no Python code: it shares all memory with this process, so nothing is copied, and only calls sleep(3), on
    `stack`, which must be kept until the child was waited for. If this process dies first, the child ends after 5 s.
    """
    top = (ctypes.addressof(stack) + len(stack)) & ~15
    ctypes.set_errno(0)
    pid = int(_clone(_sleep, ctypes.c_void_p(top), ctypes.c_int(flags | _CLONE_VM | signal.SIGCHLD), _HOLDER_S))
    if pid < 0:
        number = ctypes.get_errno()
        raise SandboxError(
            f"{step} failed", step=step, mechanism=mechanism, errno=number, cure=_EXHAUSTED.get(number, cure)
        )
    return pid


def write_file(path: str, text: str, *, step: str, mechanism: str = "", cure: str = "") -> None:
    """Write `text` in one write(2), as kernel files need. Raises SandboxError, which names `step`."""
    try:
        fd = os.open(path, _WRITE_ONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise SandboxError(
            f"{step} failed", step=step, mechanism=mechanism, errno=error.errno or 0, cure=cure
        ) from error
