"""What needs no network must work: an event loop with its socket pair, a thread and a pipe.

Source: Codex #33793
"""

import asyncio

from tests.escape.kit import Scene

EXPECT = [3, 4]


def attack(scene: Scene) -> object:
    async def both() -> list[int]:
        return [await asyncio.sleep(0, 3), await asyncio.to_thread(lambda: 4)]

    return asyncio.run(both())
