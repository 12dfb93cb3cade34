"""An import that never ends, within the call's time.

Source: R33; monty duration_limit
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("timeout")
TIMEOUT = 0.5


def attack(scene: Scene) -> object:
    exec(compile("import time\nwhile True: time.sleep(1)", "module", "exec"), {})
    return "imported"
