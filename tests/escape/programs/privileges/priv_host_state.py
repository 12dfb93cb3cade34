"""What changes the host: reboot, modules, swap, clocks, names, I/O ports.

Source: own
"""

from tests.escape.kit import Scene, asked, each

from toolcell_sandbox.kernel.syscalls import NUMBERS

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    calls = [
        "reboot",
        "kexec_load",
        "kexec_file_load",
        "init_module",
        "finit_module",
        "delete_module",
        "swapon",
        "swapoff",
        "acct",
        "vhangup",
        "iopl",
        "ioperm",
        "sethostname",
        "setdomainname",
        "settimeofday",
        "clock_settime",
        "clock_adjtime",
        "adjtimex",
        "quotactl",
    ]
    return each(lambda name: asked(name, 0, 0, 0, 0), [name for name in calls if name in NUMBERS])
