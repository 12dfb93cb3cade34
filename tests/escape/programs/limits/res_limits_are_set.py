"""The kernel's limits of this process, each no looser than the profile's.

Source: R34
"""

import resource

from tests.escape.kit import NO_NAMESPACES, Scene

EXPECT: list[object] = []
VARIES = {NO_NAMESPACES: ["NPROC"]}  # leaves room for all processes of the user; the watch counts the call's


def attack(scene: Scene) -> object:
    most = {"CORE": 1, "NOFILE": 64, "FSIZE": 2 << 20, "NPROC": 100, "MEMLOCK": 0, "STACK": 8 << 20, "AS": 4 << 30}
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in most}
    limits |= {"SIGPENDING": resource.prlimit(0, 11)[1], "MSGQUEUE": resource.prlimit(0, 12)[1]}
    limits |= {"NICE": resource.prlimit(0, 13)[1], "RTPRIO": resource.prlimit(0, 14)[1]}
    most |= {"SIGPENDING": 200, "MSGQUEUE": 0, "NICE": 0, "RTPRIO": 0}
    return [name for name, value in limits.items() if not 0 <= value <= most[name]]
