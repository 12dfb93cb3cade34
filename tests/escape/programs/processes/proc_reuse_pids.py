"""Race for the pid of the call process: exit, while another takes its place.

Source: P27; nsjail
"""

import os

from tests.escape.kit import Ends, Scene, linger

EXPECT = Ends("crashed", 0)


def attack(scene: Scene) -> object:
    if os.fork() == 0:
        linger(scene)
    os._exit(0)
