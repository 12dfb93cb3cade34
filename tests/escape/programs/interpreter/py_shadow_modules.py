"""Plant json.py and sitecustomize.py in the scratch and the working directory: nothing there is on sys.path.

Source: Y25
"""

import sys

from tests.escape.kit import Scene, tried, write

EXPECT: list[object] = []


def attack(scene: Scene) -> object:
    for name in ("json", "sitecustomize", "msgpack"):
        tried(write, f"/tmp/{name}.py")
    return [path for path in sys.path if path in ("", ".", "/tmp", scene.workspace)]
