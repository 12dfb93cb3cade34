"""Signal the supervisor by tkill, tgkill, sigqueue and pidfds.

Source: P02
"""

import ctypes
import struct

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, asked, named

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "ESRCH"
VARIES = {NO_NAMESPACES: "EPERM"}


def attack(scene: Scene) -> object:
    pid = scene.supervisor
    information = ctypes.create_string_buffer(struct.pack("iii", 9, 0, -1), 128)
    fd = attempt("pidfd_open", pid, 0)
    return all_of(
        tkill=asked("tkill", pid, 9),
        tgkill=asked("tgkill", pid, pid, 9),
        queue=asked("rt_sigqueueinfo", pid, 9, information),
        tgqueue=asked("rt_tgsigqueueinfo", pid, pid, 9, information),
        pidfd=named(-fd) if fd < 0 else asked("pidfd_send_signal", fd, 9, None, 0),
    )
