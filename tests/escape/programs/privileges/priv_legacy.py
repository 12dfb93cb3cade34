"""Old system calls with a history of bugs.

Source: own
"""

from tests.escape.kit import Scene, asked, each

from toolcell_sandbox.kernel.syscalls import NUMBERS

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    names = [
        "modify_ldt",
        "uselib",
        "ustat",
        "sysfs",
        "_sysctl",
        "nfsservctl",
        "create_module",
        "query_module",
        "get_kernel_syms",
    ]
    return each(lambda name: asked(name, 0, 0, 0, 0), [name for name in names if name in NUMBERS]) or "EPERM"
