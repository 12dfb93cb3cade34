"""Having the interpreter's code mapped in each process that is forked, where it would take some forty page faults.

fork(2) copies the page tables of a mapping only where that has a page that is the process's own (`vma_needs_copy` in
mm/memory.c), and code has none. So a page of it is made one, by writing to it what is there.
"""

import ctypes
from contextlib import suppress


def hand_on_code() -> None:
    """In the zygote: have forks hand on where the code of the interpreter and of the C library is.

    Memory that may not be written to is written through /proc/self/mem. Where the kernel was told to refuse that
    (proc_mem.force_override, Linux 6.12), forked processes have the faults.
    """
    interpreter, library = ctypes.pythonapi.Py_GetVersion, ctypes.CDLL(None).getpid
    with suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:
        for function in (interpreter, library):
            address = ctypes.cast(function, ctypes.c_void_p).value or 0
            memory.seek(address)
            byte = memory.read(1)
            memory.seek(address)
            memory.write(byte)
