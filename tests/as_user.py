"""`python -I as_user.py UID [--mask-proc] PATH... -- COMMAND...`: run a command as an ordinary user, started by root.

In a mount namespace of its own, where the paths can be reached even below a 0700 home: a tmpfs stands in for such a
home, and the paths are bound back. --mask-proc hides a part of /proc, as container engines do.
"""

import os
import sys

from toolcell_sandbox.kernel.syscalls import syscall
from toolcell_sandbox.mechanisms import mounts

split = sys.argv.index("--")
uid, command = int(sys.argv[1]), sys.argv[split + 1 :]
paths = sorted({os.path.realpath(path) for path in sys.argv[2:split] if not path.startswith("--")}, key=len)

syscall("unshare", 0x00020000, step="unshare mounts")
mounts.make_private()
if "--mask-proc" in sys.argv[:split]:
    syscall("mount", "/dev/null", "/proc/meminfo", None, 4096, None, step="mask /proc")


def closed_above(path: str) -> str | None:
    """The topmost directory above `path` that others cannot pass."""
    parts = path.strip("/").split("/")[:-1]
    for count in range(1, len(parts) + 1):
        directory = "/" + "/".join(parts[:count])
        if not os.stat(directory).st_mode & 0o001:
            return directory
    return None


trees = [(mounts.clone_tree(path), path) for path in paths if closed_above(path)]
for home in {closed_above(path) for _fd, path in trees}:
    syscall("mount", "tmpfs", home, "tmpfs", 0, "mode=755", step="cover a home")
done: list[str] = []
for fd, path in trees:
    if not any(path == other or path.startswith(other + "/") for other in done):
        os.makedirs(path if os.path.isdir(f"/proc/self/fd/{fd}") else os.path.dirname(path), exist_ok=True)
        if not os.path.isdir(f"/proc/self/fd/{fd}"):
            open(path, "w").close()
        syscall("move_mount", fd, "", -100, path, mounts.MOVE_FROM_FD, step=f"bind {path}")
        done.append(path)
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
os.execv(command[0], command)
