"""An event loop that is blocked, whose tasks are cancelled and which is closed under itself.

Source: Y21
"""

import asyncio

from tests.escape.kit import Scene, tried

EXPECT = "RuntimeError"


def attack(scene: Scene) -> object:
    async def close() -> None:
        for task in asyncio.all_tasks():
            task.cancel()
        asyncio.get_running_loop().close()

    return tried(asyncio.run, close())
