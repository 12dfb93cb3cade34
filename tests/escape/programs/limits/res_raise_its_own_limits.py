"""Raise the limits again.

Source: R34
"""

import resource

from tests.escape.kit import ROOTLESS, Scene, each, tried

EXPECT = "ValueError"
VARIES = {ROOTLESS: ("ValueError", "EPERM")}


def attack(scene: Scene) -> object:
    def raised(name: str) -> str:
        number = getattr(resource, name)
        _soft, hard = resource.getrlimit(number)
        return tried(resource.setrlimit, number, (hard + 1, hard + 1))

    return each(
        raised,
        [
            "RLIMIT_NPROC",
            "RLIMIT_NOFILE",
            "RLIMIT_FSIZE",
            "RLIMIT_MEMLOCK",
            "RLIMIT_CORE",
            "RLIMIT_STACK",
            "RLIMIT_CPU",
        ],
    )
