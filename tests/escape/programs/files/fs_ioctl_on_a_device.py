"""An ioctl on the devices that are there, which Landlock's IOCTL_DEV refuses.

Source: F20
"""

import os

from tests.escape.kit import NO_LANDLOCK, Scene, asked, each

EXPECT = "EACCES"
VARIES = {NO_LANDLOCK: "ENOTTY"}


def attack(scene: Scene) -> object:
    fd = os.open("/dev/null", os.O_RDWR)
    return each(lambda number: asked("ioctl", fd, number, None), [0x5401, 0x5413, 0x1268])
