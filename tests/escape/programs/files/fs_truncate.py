"""Truncate read-only files.

Source: F27; sandbox2 LandlockTruncateAndRefer
"""

import json
import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = ["EROFS", ("EROFS", "EACCES")]
VARIES = {NO_NAMESPACES: ["EACCES", "EACCES"]}


def attack(scene: Scene) -> object:
    system = [tried(os.open, json.__file__, os.O_WRONLY | os.O_TRUNC), tried(os.truncate, json.__file__, 0)]
    own = all_of(
        open=tried(os.open, scene.notes, os.O_WRONLY | os.O_TRUNC), truncate=tried(os.truncate, scene.notes, 0)
    )
    return [own, max(system, key=lambda answer: answer not in ("EROFS", "EACCES"))]
