"""List directories of the host.

Source: F02
"""

import os
import sys

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried

import toolcell_sandbox

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


NEEDED = (sys.base_prefix, sys.prefix, toolcell_sandbox.__file__)
"""Of the directories on the way to these, a cell sees nothing else."""


def attack(scene: Scene) -> object:
    homes = [path for path in ("/home", "/mnt") if not any(each.startswith(path) for each in NEEDED)]
    return each(lambda path: tried(os.listdir, path), [scene.outside, "/var", "/etc/init.d", "/boot", *homes])
