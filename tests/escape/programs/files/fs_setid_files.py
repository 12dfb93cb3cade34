"""With WRITE: make set-id files, which on the host would belong to the workspace's owner.

Source: V01
"""

import os
import stat

from tests.escape.kit import Scene, all_of, asked, tried

from toolcell_sandbox.kernel.syscalls import NUMBERS

EXPECT = "EPERM"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    at = scene.workspace
    return all_of(
        chmod=tried(os.chmod, f"{at}/run.sh", 0o4755),
        fchmod=tried(os.fchmod, os.open(f"{at}/run.sh", os.O_RDONLY), 0o6755),
        fchmodat2=asked("fchmodat2", -100, f"{at}/run.sh", 0o2755, 0),
        create=tried(os.open, f"{at}/new", os.O_CREAT | os.O_WRONLY, 0o4755),
        creat=asked("creat", f"{at}/new2", 0o4755) if "creat" in NUMBERS else "EPERM",
        open=asked("open", f"{at}/new3", os.O_CREAT | os.O_WRONLY, 0o4755) if "open" in NUMBERS else "EPERM",
        mknod=tried(os.mknod, f"{at}/node", stat.S_IFREG | 0o4755),
        tmpfile=tried(os.open, at, os.O_TMPFILE | os.O_WRONLY, 0o4755),
    )
