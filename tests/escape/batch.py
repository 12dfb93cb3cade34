"""Run hostile programs through a real Supervisor, one call each: `python -I batch.py ORDER`, ORDER a JSON file.

Prints one JSON line for each program: what the call came to, what the next call found, and what changed on the host.
"""

import base64
import ctypes
import errno
import fcntl
import hashlib
import importlib.util
import json
import marshal
import os
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import msgpack

from toolcell import (
    BrokeredHttp,
    Capability,
    Credential,
    Limits,
    Overloaded,
    Profile,
    RecentJournal,
    SandboxUnavailableError,
    Session,
    SessionKind,
    Supervisor,
    Tool,
    ToolContext,
    ToolResult,
)
from toolcell.backends.web import PublicWeb
from toolcell.supervisor import runtime_of
from toolcell.testing.backends import ListChannel, ListMemory
from toolcell.testing.residue import Residue
from toolcell_sandbox.kernel import syscalls
from toolcell_sandbox.mechanisms import capabilities

HERE = Path(__file__).parent
PROGRAMS = {path.stem: path for path in (HERE / "programs").glob("*/*.py")}
MIB = 1024 * 1024
LIMITS = Limits(
    wall_s=600.0,
    cpu_s=60.0,
    memory_bytes=96 * MIB,
    processes=16,
    open_files=64,
    file_bytes=2 * MIB,
    scratch_bytes=4 * MIB,
    scratch_inodes=512,
    output_bytes=256 * 1024,
    result_bytes=256 * 1024,
)
TIMEOUT_S = 100.0
"""Ends a program that hangs. One that shall end at its timeout has a shorter one of its own."""
KIT = ModuleType("attackers_kit")  # no name that can be imported, so it travels by value
"""The kit, and what it and most programs import, travel with the tool: a cell loads them once, not in every call."""
IMPORTED = (ctypes, errno, fcntl, json, msgpack, re, signal, socket, stat, struct, syscalls, time)
BLOCKED = "import signal, sys; signal.pthread_sigmask(0, signal.valid_signals()); print(flush=True); sys.stdin.read()"


def compiled(module: ModuleType) -> str:
    """The module's code, which the same interpreter can load, in text."""
    loader = module.__loader__
    assert isinstance(loader, SourceFileLoader)
    return base64.b64encode(marshal.dumps(loader.get_code(module.__name__))).decode()


def perform(ctx: ToolContext, name: str, source: str, facts: dict[str, Any]) -> Any:
    """Run a hostile program."""
    import base64
    import marshal
    import sys
    import types

    assert all(module.__name__ in sys.modules for module in IMPORTED)
    for package in ("tests", "tests.escape"):
        sys.modules[package] = types.ModuleType(package)
    sys.modules["tests.escape.kit"] = KIT
    if not source:
        return KIT.look(facts["workspace"])
    program = types.ModuleType(name)
    exec(marshal.loads(base64.b64decode(source)), program.__dict__)
    return program.attack(KIT.Scene(ctx=ctx, **facts))


def load(name: str) -> ModuleType:
    """The program as a module, for its metadata."""
    spec = importlib.util.spec_from_file_location(name, PROGRAMS[name])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Host:
    """What the attacks are after: files, sockets and processes outside the cell, watched for any change."""

    def __init__(self, stage: Path, marker: str, lanes: int) -> None:
        self.stage = stage
        self.marker = marker
        self.token = "tcsecret-" + os.urandom(16).hex()
        os.environ["TOOLCELL_ESCAPE_SECRET"] = self.token
        self.outside = stage / "outside"
        self.workspaces = [stage / f"work{lane}" for lane in range(lanes)]
        os.umask(0)
        self._furnish_outside()
        self._listen()
        for workspace in self.workspaces:
            self.furnish(workspace)
        self.canary = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BLOCKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.canary.stdout is not None
        self.canary.stdout.readline()
        self.before = dict(snapshot(self.outside))
        self.nice = os.getpriority(os.PRIO_PROCESS, self.canary.pid)

    def _furnish_outside(self) -> None:
        shutil.rmtree(self.outside, ignore_errors=True)
        (self.outside / "dir").mkdir(parents=True)
        for name in ("secret.txt", "list.txt", "dir/inner.txt"):
            (self.outside / name).write_text(f"{name}: {self.token}\n")
        (self.outside / "run.sh").write_text("#!/bin/sh\nexit 42\n")
        (self.outside / "run.sh").chmod(0o777)
        beside = self.stage / "work0x"  # whose name begins like the workspace's
        beside.mkdir(exist_ok=True)
        (beside / "secret.txt").write_text(self.token)

    def furnish(self, workspace: Path) -> None:
        """Put the workspace back to how every program finds it; the directory itself stays, for it is mounted."""
        workspace.mkdir(exist_ok=True)
        for path in workspace.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (workspace / "dir").mkdir()
        (workspace / "notes.txt").write_text("notes\n")
        (workspace / "dir" / "inner.txt").write_text("inner\n")
        (workspace / "run.sh").write_text("#!/bin/sh\nexit 42\n")
        (workspace / "run.sh").chmod(0o755)
        (workspace / "repository/.git/hooks").mkdir(parents=True)
        (workspace / "repository/.git/config").write_text("[core]\n")
        (workspace / "to_secret").symlink_to(self.outside / "secret.txt")
        (workspace / "to_outside").symlink_to(self.outside)
        os.link(self.outside / "app.sock", workspace / "listen.sock")

    def _listen(self) -> None:
        self.listeners: list[socket.socket] = []
        self.abstract = f"{self.marker}-abstract"
        for family, kind, address in (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "app.sock")),
            (socket.AF_UNIX, socket.SOCK_DGRAM, str(self.outside / "app.dgram")),
        ):
            listener = socket.socket(family, kind)
            listener.bind(address)
            listener.setblocking(False)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            self.listeners.append(listener)
        self.tcp_port = self.listeners[0].getsockname()[1]
        self.udp_port = self.listeners[1].getsockname()[1]

    def changes(self) -> Iterator[str]:
        """What is not as it was, a line each; puts it right again."""
        now = dict(snapshot(self.outside))
        for path in sorted(now.keys() | self.before.keys()):
            if now.get(path) != self.before.get(path):
                yield f"{path} changed: {_difference(self.before.get(path), now.get(path))}"
        if now != self.before:
            for path, (mode, *_rest) in self.before.items():
                place = self.outside / path  # absolute paths stay what they are
                if place.exists():
                    os.chmod(place, stat.S_IMODE(mode))
            self.before = dict(snapshot(self.outside))
        for listener in self.listeners:
            try:
                if listener.type == socket.SOCK_STREAM:
                    listener.accept()[0].close()
                else:
                    listener.recv(100)
            except BlockingIOError:
                continue
            yield f"someone reached {listener.getsockname()}"
        with open(f"/proc/{self.canary.pid}/status") as file:
            status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
        if not status["State"].startswith("S") or int(status["SigPnd"], 16) or int(status["ShdPnd"], 16):
            yield f"the canary process: {status['State']}, signals {status['ShdPnd']}"
        nice, self.nice = self.nice, os.getpriority(os.PRIO_PROCESS, self.canary.pid)
        if nice != self.nice:
            yield f"the canary's priority changed from {nice} to {self.nice}"

    def left(self, marker: str) -> list[int]:
        """The processes that call themselves by this name, here on the host."""
        found: list[int] = []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm") as file:
                    name = file.read().strip()
            except OSError:
                continue  # gone meanwhile
            if name == marker:
                found.append(int(pid))
        return found

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        self.canary.kill()
        self.canary.wait()
        for pipe in (self.canary.stdin, self.canary.stdout):
            assert pipe is not None
            pipe.close()


Entry = tuple[int, int, int, int, int, str]


def snapshot(root: Path) -> Iterator[tuple[str, Entry]]:
    """Everything below `root`: mode, owner, links, size, time of change, content."""
    yield ".", _entry(str(root), os.lstat(root))
    waiting = [str(root)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry.path, _entry(entry.path, entry.stat(follow_symlinks=False))
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _entry(path: str, info: os.stat_result) -> Entry:
    kind = stat.S_IFMT(info.st_mode)
    if kind == stat.S_IFREG:
        with open(path, "rb") as file:
            content = hashlib.sha256(file.read()).hexdigest()
        return info.st_mode, info.st_uid, info.st_nlink, info.st_size, info.st_mtime_ns, content
    content = os.readlink(path) if kind == stat.S_IFLNK else ""
    return info.st_mode, info.st_uid, 0, 0, 0, content


def _difference(before: Entry | None, now: Entry | None) -> str:
    if before is None or now is None:
        return "new" if before is None else "gone"
    names = ("mode", "owner", "links", "size", "time", "content")
    return ", ".join(name for name, old, new in zip(names, before, now, strict=True) if old != new)


class Cast:
    """The tools: one for each set of grants and limits that the programs ask for."""

    def __init__(self, programs: dict[str, ModuleType]) -> None:
        self.tools: dict[str, Tool[..., Any]] = {}
        self.of: dict[str, str] = {}
        for name, module in programs.items():
            grants: str = getattr(module, "GRANTS", "read")
            limits: dict[str, float] = getattr(module, "LIMITS", {})
            key = "_".join(["attack", *sorted(grants.replace(".", "_").split())])
            key += "".join(f"_{field}_{str(value).replace('.', 'p')}" for field, value in sorted(limits.items()))
            if key not in self.tools:
                needs = [Capability(grant) for grant in grants.split()]
                self.tools[key] = Tool(perform, name=key, needs=needs, limits=limits or None)
            self.of[name] = key


class Lane:
    """Sessions of one workspace, in which programs run one after the other."""

    def __init__(self, supervisor: Supervisor, host: Host, tools: Cast, number: int, bystander: int) -> None:
        self.supervisor = supervisor
        self.host = host
        self.tools = tools
        self.workspace = host.workspaces[number]
        self.sessions: dict[str, Session] = {}
        self.channel, self.memory = ListChannel(), ListMemory()
        self.facts = {
            "workspace": str(self.workspace),
            "outside": str(host.outside),
            "supervisor": os.getpid(),
            "canary": host.canary.pid,
            "bystander": bystander,
            "tcp": host.tcp_port,
            "udp": host.udp_port,
            "abstract": host.abstract,
            "marker": f"{host.marker}{number}",
        }
        self.first: dict[str, Any] = {}

    async def session(self, kind: str) -> Session:
        if kind not in self.sessions:
            self.sessions[kind] = await self.supervisor.open_session(
                kind,
                workspace=self.workspace,
                channel=self.channel,
                memory=self.memory,
                web=PublicWeb(resolve=lambda host, port: ["127.0.0.1"], timeout_s=2.0),
            )
        return self.sessions[kind]

    def incidents(self, call_id: str) -> list[str]:
        """What the supervisor has put on record about a call."""
        journal = self.supervisor.journal
        assert isinstance(journal, RecentJournal)
        return [str(record.data["what"]) for record in journal.of(kind="incident", call_id=call_id)]

    def strays(self) -> list[int]:
        """What the zygotes and the cells have as descendants, but for the cells' inits and their waiting processes."""
        until = time.monotonic() + 60.0
        while True:
            cells = {cell.pid for cell in runtime_of(self.supervisor).pool.cells.values()}
            found: list[int] = []
            for zygote in children(os.getpid()):
                for pid in children(zygote) if zygote != self.host.canary.pid else ():
                    below = list(descendants(pid))
                    found += below[1:] if pid in cells else [pid, *below]
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.02)  # what was killed is on its way

    async def run(self, name: str, module: ModuleType) -> dict[str, Any]:
        """One program, the call after it, and a look at the host."""
        kind = getattr(module, "KIND", "main")
        session = await self.session(kind)
        tool = self.tools.of[name]
        writes = "write" in getattr(module, "GRANTS", "read")
        before = dict(snapshot(self.workspace))
        source = compiled(module)
        arguments = {"name": name, "source": source, "facts": self.facts}
        calm = arguments | {"source": ""}
        key = f"{kind} {tool}"
        if key not in self.first:
            self.first[key] = (await session.call(tool, calm, timeout=TIMEOUT_S)).output
        raised = ""
        try:
            limit = getattr(module, "TIMEOUT", TIMEOUT_S)
            result = await session.call(tool, arguments, timeout=limit)
            while isinstance(result.error, Overloaded):  # on a busy machine its time was over before it began
                limit *= 2
                result = await session.call(tool, arguments, timeout=limit)
            for _ in range(getattr(module, "CALLS_AFTER", 1)):
                following = await session.call(tool, calm, timeout=TIMEOUT_S)
                if following.output != self.first[key]:
                    break
        except Exception as error:  # `call` never raises for what a tool does: this is a finding
            raised = repr(error)
            result = following = ToolResult()
        following_output = following.output if following.error is None else following.error.model_dump(mode="json")
        if raised or following_output != self.first[key]:
            await self.sessions.pop(kind).close()
        marker = str(self.facts["marker"])
        left = self.host.left(marker) if "linger(" in PROGRAMS[name].read_text() else []
        if "pid_namespace" not in self.supervisor.status().on:
            left = self.strays()
        for pid in left:
            os.kill(pid, signal.SIGKILL)  # the suite leaves nothing, whatever it found
        changes = [*self.host.changes(), *(["processes are left"] if left else [])]
        if not writes:
            now = dict(snapshot(self.workspace))
            changes += [
                f"workspace {path} changed: {_difference(before.get(path), now.get(path))}"
                for path in sorted(now.keys() | before.keys())
                if now.get(path) != before.get(path)
            ]
        if self.channel.sent and "channel" not in getattr(module, "GRANTS", ""):
            changes.append(f"the channel got {self.channel.sent}")
        self.channel.sent.clear()
        if dict(snapshot(self.workspace)) != before:
            self.host.furnish(self.workspace)
        incidents = self.incidents(result.call_id)
        for _ in range(3_000 if hasattr(module, "INCIDENT") else 0):
            if incidents:
                break
            await anyio.sleep(0.02)  # what comes after the answer is seen when it comes
            incidents = self.incidents(result.call_id)
        return {
            "name": name,
            "output": result.output,
            "error": result.error.model_dump(mode="json") if result.error else None,
            "notices": [f"{notice.kind}: {notice.message}" for notice in result.notices],
            "told": " ".join(notice.message for notice in result.notices if notice.kind == "protected_name"),
            "incidents": incidents,
            "raised": raised,
            "next": following_output,
            "first": self.first[key],
            "host": changes,
            "cpu_s": result.usage.cpu_s,
            "sandbox": result.sandbox.model_dump(),
            "stdout": result.stdout.text[:2000],
            "stderr": result.stderr.text[:2000],
            "missing": sorted(one.name for one in self.supervisor.status().missing),
        }


def may_raise_limits() -> bool:
    """Whether this process has CAP_SYS_RESOURCE."""
    return bool(capabilities.held()[0] >> 24 & 1)


def raise_priorities() -> None:
    """Have limits on priorities that are worth something, as the user of a sound server may have, where that is up to
    this process."""
    if may_raise_limits():
        resource.setrlimit(resource.RLIMIT_RTPRIO, (50, 50))
        resource.setrlimit(resource.RLIMIT_NICE, (40, 40))


def _held_for(module: ModuleType) -> float:
    """How long the program holds its call if it ends at its timeout, else 0. Those come first: beside programs that
    keep the supervisor busy, a short timeout may be over before the call has its process."""
    wanted = module.EXPECT if isinstance(module.EXPECT, tuple) else (module.EXPECT,)
    ends_late = any(getattr(each, "kind", "") == "timeout" for each in wanted)
    return float(getattr(module, "TIMEOUT", TIMEOUT_S)) if ends_late else 0.0


def children(pid: int) -> list[int]:
    """The living children of a process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split() if state(int(child)) != "Z"]
    except OSError:
        return []


def state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


async def main(order: dict[str, Any]) -> None:
    sys.modules[KIT.__name__] = KIT  # or the methods of its dataclasses have no module, for which cloudpickle looks
    exec(compile((HERE / "kit.py").read_text(), "kit.py", "exec"), KIT.__dict__)
    del sys.modules[KIT.__name__]
    programs = {name: load(name) for name in order["programs"]}
    tools = Cast(programs)
    raise_priorities()
    with ExitStack() as stack:
        host = Host(Path(order["stage"]), order["marker"], order["lanes"])
        stack.callback(host.close)
        tempfile.tempdir = str(host.stage / "temporary")  # the machine's own is others' too
        os.mkdir(tempfile.tempdir)
        before = Residue.now()
        limits = LIMITS.replace(processes=order["processes"])
        rules = ("GET http://rebind.example.org",)
        profiles = {kind: Profile.for_kind(kind.value).replace(limits=limits, http=rules) for kind in SessionKind}
        key = Credential(value=host.token)
        http = BrokeredHttp(credentials={"http://rebind.example.org": key}, resolve=lambda host, port: ["127.0.0.1"])
        async with Supervisor(
            tools.tools.values(),
            profiles=profiles,
            http=http,
            allow_missing=order["allow"],
            journal=RecentJournal(),
            quarantine=host.stage / "quarantine",
        ) as supervisor:
            bystander = await supervisor.open_session("main", workspace=host.stage / "bystander")
            tool = next(iter(tools.tools))
            calm = {"name": "calm", "source": "", "facts": {"workspace": ""}}
            first = await bystander.call(tool, calm)
            (init,) = [cell.pid for cell in runtime_of(supervisor).pool.cells.values()] or [0]
            alone = [name for name in programs if hasattr(programs[name], "LAST")]
            waiting = sorted(programs.keys() - alone, key=lambda name: (-_held_for(programs[name]), name))
            lanes = [Lane(supervisor, host, tools, number, init) for number in range(order["lanes"])]

            async def work(lane: Lane, names: list[str]) -> None:
                while names:
                    name = names.pop(0)
                    say({"starts": name})
                    say(await lane.run(name, programs[name]))

            async def stay_awake() -> None:
                while True:  # a cell that is idle for a minute is ended, and a slow machine takes longer than that
                    await anyio.sleep(20)
                    await bystander.call(tool, calm)

            async with anyio.create_task_group() as beside:
                beside.start_soon(stay_awake)
                async with anyio.create_task_group() as tasks:
                    for lane in lanes:
                        tasks.start_soon(work, lane, waiting)
                beside.cancel_scope.cancel()
            last = await bystander.call(tool, calm)
            alive = init in [cell.pid for cell in runtime_of(supervisor).pool.cells.values()]
            await work(lanes[0], alone)
            identity = supervisor.status().identity
        say(
            {
                "end": order["variant"],
                "identity": identity,
                "bystander": [first.output, last.output, alive],
                "residue": Residue.now().beyond(before),
            }
        )


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        ORDER = json.load(file)
    sys.path.insert(0, str(HERE.parent.parent))  # for `tests.escape.kit`
    try:
        anyio.run(main, ORDER)
    except SandboxUnavailableError as error:
        say({"unavailable": str(error), "mechanism": error.mechanism})
