"""What Ray does with the bytes of an exchange."""

import os
import subprocess
import sys
from pathlib import Path
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


def test_a_program_that_needs_rays_token_and_has_none_is_told_how_to_set_it(tmp_path: Path) -> None:
    code = """
import anyio
from toolcell import Supervisor, UsageError
from toolcell.cluster import RayCluster

async def main():
    try:
        await Supervisor(cluster=RayCluster("127.0.0.1:1")).start()
    except UsageError as error:
        print(error)

anyio.run(main)
"""
    env = {**os.environ, "HOME": str(tmp_path), "RAY_AUTH_MODE": "token"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120, check=True
    )
    assert "set RAY_AUTH_MODE=token, and the token by RAY_AUTH_TOKEN" in done.stdout
