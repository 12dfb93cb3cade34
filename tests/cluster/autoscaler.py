"""A session that waits for labels, and Ray's own autoscaler, which starts a node for it.

    python -m tests.cluster.autoscaler

The autoscaler is that of `ray start`, with Ray's provider of nodes on one machine, which needs the port 6379. The
program has a temporary directory of its own for Ray, and ends what it has started. It needs the extra [test-cluster].
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from toolcell import Supervisor, base_tools
from toolcell.cluster import RayCluster

PORT = 6379
HEAD = f"{'f' * 51}00000"
LABELS = {"disk": "nvme"}
MOST_S = 400.0
NODE = {"resources": {"CPU": 1, "object_store_memory": 100_000_000}, "node_config": {}, "min_workers": 0}
COMMANDS = [
    *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"),
    *("head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files", "rsync_exclude", "rsync_filter"),
]
OWN = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_AUTH_MODE": "disabled"}
"""Of this program and its cluster. The cluster is on this machine, and ends with the program."""
OF_HEAD = {
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": HEAD,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
}


def config() -> dict[str, Any]:
    """The cluster: a head, nodes without labels, and one with."""
    return {
        "cluster_name": "toolcell",
        "max_workers": 3,
        "idle_timeout_minutes": 5.0,
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "launch_multiple": True,
            "head_node_id": HEAD,
        },
        "auth": {"ssh_user": "nobody"},
        **{key: list[str]() for key in COMMANDS},
        "file_mounts": {},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "plain": {**NODE, "max_workers": 2},
            "labelled": {**NODE, "labels": LABELS, "max_workers": 1},
        },
    }


@contextmanager
def head(directory: Path) -> Iterator[None]:
    """A cluster whose autoscaler runs. At the end, all its processes are ended."""
    (directory / "autoscaler.json").write_text(json.dumps(config()))
    said = directory / "head.log"
    options = f"--port={PORT} --num-cpus=1 --object-store-memory=100000000 --include-dashboard=false".split()
    command = [f"{sys.prefix}/bin/ray", "start", "--head", "--block", *options]
    with (
        said.open("wb") as log,
        subprocess.Popen(
            [*command, f"--autoscaling-config={directory / 'autoscaler.json'}"],
            env={**os.environ, **OF_HEAD},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + MOST_S
            while b"Ray runtime started" not in said.read_bytes():
                assert process.poll() is None and time.monotonic() < deadline, said.read_text()
                time.sleep(0.2)
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(120.0)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def labels(session: Mapping[str, Any]) -> Mapping[str, str]:
    return LABELS if session["agent_id"] == "picky" else {}


async def main(workspace: Path) -> None:
    cluster = RayCluster(f"127.0.0.1:{PORT}", labels=labels)
    async with Supervisor(base_tools(), cluster=cluster) as supervisor:
        assert [node["labels"].keys() & LABELS.keys() for node in supervisor.nodes()] == [set()]
        session = await supervisor.open_session("main", workspace=workspace, agent_id="picky")
        start = time.perf_counter()
        result = await session.call("shell", {"command": "echo placed"}, timeout=MOST_S)
        assert result.unwrap()["stdout"] == "placed\n"
        (home,) = [node for node in supervisor.nodes() if node["sessions"]]
        assert home["labels"].items() >= LABELS.items()
        taken_s = time.perf_counter() - start
        print(f"The autoscaler started a node with {LABELS}, and the session ran there after {taken_s:.1f} s.")
    await cluster.remove()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tc") as temporary:  # a short path, because Ray makes sockets there
        os.environ.update(OWN, RAY_TMPDIR=temporary)
        (Path(temporary) / "workspace").mkdir()
        with head(Path(temporary)):
            anyio.run(main, Path(temporary) / "workspace")
