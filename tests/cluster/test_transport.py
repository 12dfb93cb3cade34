"""What Ray does with the bytes of an exchange."""

from typing import Any

import pytest
import ray as untyped
from tests.cluster.conftest import RayNodes

ray: Any = untyped


class Holder:
    """An actor that gives its argument back, as a node's does."""

    async def echo(self, data: bytes) -> bytes:
        return data


@pytest.mark.parametrize(("size", "stored"), [(50_000, False), (150_000, True)])
def test_a_reply_over_100_kb_crosses_in_the_object_store(ray_nodes: RayNodes, size: int, stored: bool) -> None:
    from ray._private import worker as of_ray

    actor: Any = ray.remote(Holder).options(num_cpus=0).remote()
    reply = actor.echo.remote(bytes(size))
    ray.wait([reply])
    driver: Any = of_ray.global_worker
    worker = driver.core_worker
    assert worker.object_exists(reply)
    assert worker.object_exists(reply, memory_store_only=True) is not stored
    assert len(ray.get(reply)) == size
    ray.kill(actor)
