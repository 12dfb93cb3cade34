"""Probe whether paths of the host exist, by stat and access.

Source: I15
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "ok"}


def attack(scene: Scene) -> object:
    return all_of(stat=tried(os.stat, scene.secret), exists="ok" if os.path.exists(scene.outside) else "ENOENT")
