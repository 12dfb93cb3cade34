"""What /proc tells of the machine.

Source: I07
"""

from tests.escape.kit import NO_NAMESPACES, Scene, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    names = [
        "cmdline",
        "net/dev",
        "sys/kernel/random/boot_id",
        "kallsyms",
        "meminfo",
        "cpuinfo",
        "modules",
        "mounts",
        "version",
        "interrupts",
        "keys",
        "sched_debug",
        "sysvipc/shm",
        "kcore",
        "config.gz",
        "timer_list",
    ]
    found = {tried(read, f"/proc/{name}") for name in names if name != "mounts"}
    return found.pop() if len(found) == 1 else "EACCES" if found == {"EACCES", "ENOENT"} else sorted(found)
