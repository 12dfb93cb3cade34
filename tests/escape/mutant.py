"""Cells that lack one layer each, and what the hostile programs make of it: `python -I mutant.py ORDER`.

Everything happens in namespaces of this process's own, so that nothing a crippled cell does can reach the machine. For
each layer a child process leaves it out, makes a cell as `toolcell_sandbox.run` does, and runs programs in it, each in
a process of its own. Prints one JSON line for each layer.
"""

import importlib
import json
import os
import select
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
sys.path.insert(0, str(REPOSITORY))  # for `tests.escape`

PROGRAM_S = 2.0
LAYER_S = 120.0


def contain() -> None:
    """Give this process mounts, a host name, System V IPC and pids of its own, where it may."""
    from toolcell_sandbox.kernel.syscalls import attempt, syscall

    if os.geteuid() != 0:
        return
    os.setgroups([0])
    syscall("unshare", 0x20000 | 0x4000000 | 0x8000000 | 0x20000000, step="contain")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
    attempt("prctl", 1, signal.SIGKILL, 0, 0, 0)
    syscall("mount", "none", "/", None, 0x4000 | 0x40000, None, step="private mounts")
    syscall("mount", "none", "/", None, 0x4000 | 0x100000, None, step="shared below, as with systemd")
    syscall("mount", "proc", "/proc", "proc", 0, None, step="its own /proc")


def run_programs(modules: dict[str, ModuleType], scene: Any, give: int, _entered: object) -> None:
    """In the cell: each program in a child with the layer of a call process; its answer goes to the pipe."""
    from toolcell_sandbox.mechanisms import landlock

    for name, module in modules.items():
        child = os.fork()
        if child == 0:
            try:
                answer: object
                try:
                    for step in landlock.call_layer():
                        step()
                    answer = module.attack(scene)
                except BaseException as error:
                    answer = f"{type(error).__name__}: {error}"
                os.write(give, json.dumps([name, answer]).encode() + b"\n")
            finally:
                os._exit(0)
        fd = os.pidfd_open(child)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(PROGRAM_S * 1000):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(fd)


def cell_without(layer: Any, blind: bool, modules: dict[str, ModuleType], facts: dict[str, Any], report: Any) -> Any:
    """Leave the layer out and make a cell. "refused: …" or what each program answered."""
    from tests.escape import layers
    from tests.escape.kit import Scene

    from toolcell_sandbox import CellProfile, Identity, Limits, SandboxError, run
    from toolcell_sandbox.identity import unused_slots

    enter = sys.modules["toolcell_sandbox.enter"]
    identity = Identity.for_slot(unused_slots())
    layers.cell_gid = identity.gid
    granted = {name for name, module in modules.items() if "exec" in getattr(module, "GRANTS", "")}
    answers: dict[str, object] = {}
    layer.leave_out()
    if blind:
        layers.replace_in(enter.selftest, "verify", layers.nothing)
    for names, grants in ((modules.keys() - granted, "read"), (granted, "read exec")):
        if not names:
            continue
        writes = any("write" in getattr(modules[name], "GRANTS", "") for name in names)
        place = (facts["workspace"],)
        profile = CellProfile(
            grants=frozenset(grants.split()),
            limits=Limits(processes=16, open_files=64, file_bytes=2 << 20, scratch_bytes=4 << 20, scratch_inodes=512),
            readable=(str(REPOSITORY), *(() if writes else place)),
            writable=place if writes else (),
            cwd=facts["workspace"],
        )
        take, give = os.pipe()
        os.set_inheritable(give, True)
        try:
            chosen = {name: modules[name] for name in sorted(names)}
            run(
                partial(run_programs, chosen, Scene(ctx=None, **facts), give),
                profile,
                identity=identity,
                report=report,
                keep_fds=(give,),
            )
        except SandboxError as error:
            return f"refused: {error.what}"
        finally:
            os.close(give)
        with os.fdopen(take, "rb") as pipe:
            for line in pipe.read().splitlines():
                name, answer = json.loads(line)
                answers[name] = answer
    return answers


def probed() -> Any:
    """The report of a probe in namespaces like those of the cells."""
    from toolcell_sandbox import SandboxReport, probe

    take, give = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            contain()
            os.write(give, json.dumps(probe().to_wire()).encode())
        finally:
            os._exit(0)
    os.close(give)
    with os.fdopen(take) as pipe:
        report = SandboxReport.from_wire(json.load(pipe))
    os.waitpid(child, 0)
    return report


def apart(
    layer: Any, blind: bool, modules: dict[str, ModuleType], facts: dict[str, Any], report: Any
) -> tuple[Any, list[str]]:
    """What came of a cell without the layer, made in namespaces of its own, and what changed in those."""
    take, give = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(take)
            contain()
            name, mounts = os.uname().nodename, Path("/proc/self/mountinfo").read_text()
            try:
                said = cell_without(layer, blind, modules, facts, report)
            except BaseException as error:
                said = f"failed: {type(error).__name__}: {error}"
            changes = ["mounts are left"] if Path("/proc/self/mountinfo").read_text() != mounts else []
            changes += ["the host has another name"] if os.uname().nodename != name else []
            with os.fdopen(give, "wb") as pipe:
                pipe.write(json.dumps([said, changes]).encode())
        finally:
            os._exit(0)
    os.close(give)
    os.set_blocking(take, False)
    until, text = time.monotonic() + LAYER_S, b""
    while (left := until - time.monotonic()) > 0 and select.select([take], [], [], left)[0]:
        part = os.read(take, 65536)
        if not part:
            break
        text += part
    os.close(take)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not text:
        return "nothing was said in time", []
    said, changes = json.loads(text)
    return said, changes


def main(order: dict[str, Any]) -> None:
    from tests.escape import batch, layers

    for module in (
        "tests.escape.kit",
        "tests.misbehaving",
        "toolcell_sandbox.run",
        "toolcell_sandbox.enter",
    ):
        importlib.import_module(module)
    batch.raise_priorities()
    host = batch.Host(Path(order["stage"]), f"mutant{os.getpid()}", 1)
    facts = {
        "workspace": str(host.workspaces[0]),
        "outside": str(host.outside),
        "supervisor": os.getpid(),
        "canary": host.canary.pid,
        "bystander": host.canary.pid,
        "tcp": host.tcp_port,
        "udp": host.udp_port,
        "abstract": host.abstract,
        "marker": host.marker,
    }
    modules = {name: batch.load(name) for _layer, _blind, names in order["runs"] for name in names}
    by_name = {layer.name: layer for layer in layers.LAYERS} | {"": layers.Layer("", layers.nothing)}
    inherited = os.open(order["stage"] + "/outside/secret.txt", os.O_RDONLY)
    os.dup2(inherited, 40)  # what a runtime could leak into its cells
    report = probed()
    for name, blind, wanted in order["runs"]:
        chosen = {each: modules[each] for each in wanted}
        said, changes = apart(by_name[name], blind, chosen, facts, report)
        host.furnish(host.workspaces[0])
        line = {"layer": name, "blind": blind, "said": said, "host": [*changes, *host.changes()]}
        print(json.dumps(line), flush=True)
    host.close()


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        ORDER = json.load(file)
    main(ORDER)
