"""Drop all capabilities, and every way to gain them."""

import ctypes
import errno
import os

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.kernel.syscalls import attempt, syscall

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 4, 24, 28
PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 38, 39, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAP_SETPCAP = 8
# NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock, and KEEP_CAPS locked off.
SECUREBITS = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40 | 0x80
_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = tuple(
        (f"{kind}{word}", ctypes.c_uint32) for word in (0, 1) for kind in ("effective", "permitted", "inheritable")
    )


def limit() -> None:
    """Empty the bounding set and take root's special rights in execve(2) away. Keeps the held capabilities."""
    if held()[0] >> CAP_SETPCAP & 1:
        syscall("prctl", PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0, step="lock securebits")
        _drop_bounding_set()


def drop(identity: Identity) -> None:
    """Become the identity's uid and gid, and drop every capability from every set, for good."""
    syscall("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, step="clear ambient capabilities")
    if identity.mode == "root":  # a user namespace denies setgroups, and unmapped groups have no rights in it
        syscall("setgroups", 0, None, step="drop supplementary groups")
    syscall("setresgid", *(identity.gid,) * 3, step=f"become gid {identity.gid}")
    syscall("setresuid", *(identity.uid,) * 3, step=f"become uid {identity.uid}")
    syscall("capset", _Header(_VERSION_3, 0), _Data(), step="drop capabilities")
    left = held()
    if any(left) or os.getresuid() != (identity.uid,) * 3 or os.getresgid() != (identity.gid,) * 3:
        raise SandboxError(
            f"Privileges are left after dropping them: {left}, uid {os.getresuid()}", step="drop capabilities"
        )


def _drop_bounding_set() -> None:
    for capability in range(64):
        result = attempt("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
        if result == -errno.EINVAL and capability > CAP_SETPCAP:
            return  # this kernel has no more capabilities
        if result < 0:
            raise SandboxError(f"Capability {capability} stays in the bounding set", step="drop", errno=-result)


def held() -> tuple[int, int, int]:
    """The effective, permitted and inheritable capabilities of this process, as bit sets."""
    data = _Data()
    syscall("capget", _Header(_VERSION_3, 0), data, step="read capabilities")
    low_high = [
        int(getattr(data, f"{kind}0")) | int(getattr(data, f"{kind}1")) << 32
        for kind in ("effective", "permitted", "inheritable")
    ]
    return low_high[0], low_high[1], low_high[2]


def no_new_privileges() -> None:
    """From now on, execve(2) ignores set-user-ID bits and file capabilities."""
    syscall("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, step="set no_new_privs", mechanism="no_new_privs")


def undumpable() -> None:
    """Processes of the same uid cannot trace this process or read its memory, and it leaves no core file."""
    syscall("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0, step="clear dumpable")
