"""`memory_scan.py DIRECTORY STANDBY`: run sessions that hold canaries, and print where canaries are found, as JSON.

A canary is `canary-<owner>-<16 hex digits>`. The owners are `host` (the supervisor's environment and credentials) and
the numbers of the sessions (environment, hosts, agent ids, arguments and results), after `path` for paths. Calls look
for canaries in the memory of their process, which has the memory of the cell's init too. This program looks in the
memory of all its descendants that it may read: as root all of them, as an ordinary user the zygotes.
"""

import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from toolcell import BrokeredHttp, Credential, NoNetwork, Profile, ProxyNetwork, tool
from toolcell.blocking import Session, Supervisor

SIZES = (300, 5_000, 40_000, 200_000)  # of a canary with its repetitions, for the allocators' classes and mmap(2)
FOUND = re.compile(rb"c[a]nary-(\w+)-[0-9a-f]{16}")  # it does not find itself


def canary(owner: object) -> str:
    return f"canary-{owner}-{os.urandom(8).hex()}"


@tool(needs=["read"])
def echo(text: str) -> str:
    """Return the text.

    Args:
        text: Any text.
    """
    return text


@tool(needs=["read"], lifetime="session")
def keep(text: str) -> str:
    """Return the text, and keep the process.

    Args:
        text: Any text.
    """
    return text


def owners_in_own_memory() -> list[str]:
    """The owners of the canaries in the writable memory of this process."""
    found: set[bytes] = set()
    with open("/proc/self/maps") as maps:
        lines = maps.read().splitlines()
    for line in lines:
        span, rights, *_rest, name = [*line.split(maxsplit=5), ""][:6]
        if rights[0] == "r" and rights[1] == "w" and not name.startswith("[v"):
            start, end = (int(each, 16) for each in span.split("-"))
            found |= set(FOUND.findall(ctypes.string_at(start, end - start)))
    return sorted(each.decode() for each in found)


@tool(needs=["read"])
def scan() -> list[str]:
    """Return the owners of the canaries in the memory of a call process."""
    return owners_in_own_memory()


@tool(needs=["read"], lifetime="session")
def scan_kept() -> list[str]:
    """Return the owners of the canaries in the memory of a kept process."""
    return owners_in_own_memory()


def owners_in_memory_of(pid: int) -> set[str]:
    """The owners of the canaries in the writable memory of another process. Raises PermissionError."""
    found: set[bytes] = set()
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps.read().splitlines():
            span, rights, *_rest = line.split()
            start, end = (int(each, 16) for each in span.split("-"))
            if rights.startswith("rw"):
                data = os.pread(memory.fileno(), end - start, start)
                found |= set(FOUND.findall(data))
    for name in ("environ", "cmdline"):
        found |= set(FOUND.findall(Path(f"/proc/{pid}/{name}").read_bytes()))
    return {each.decode() for each in found}


def children(pid: int) -> Iterator[int]:
    for thread in os.listdir(f"/proc/{pid}/task"):
        yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())


def everywhere() -> dict[str, list[str]]:
    """The owners of the canaries in this process and in each descendant that can be read, by name and pid."""
    found = {"supervisor": sorted(owners_in_memory_of(os.getpid()))}
    ahead = [(pid, "zygote") for pid in children(os.getpid())]
    while ahead:
        pid, name = ahead.pop()
        try:
            ahead += [(child, "below") for child in children(pid)]
            (pids,) = re.findall(r"NSpid:(.*)", Path(f"/proc/{pid}/status").read_text())
            kind = name if name == "zygote" else "cell" if len(pids.split()) > 1 else "doorkeeper"
            found[f"{kind} {pid}"] = sorted(owners_in_memory_of(pid))
        except PermissionError:
            if name == "zygote":
                raise
        except OSError:
            status = Path(f"/proc/{pid}/status")
            if status.exists() and "zombie" not in status.read_text():
                raise
    return found


def profile_of(owner: str, size: int, place: Path, kind: str, network: bool) -> Profile:
    """A profile whose environment, paths, host name and hosts hold canaries of this owner."""
    text = canary(owner)
    readable = place / canary(f"path{owner}")
    readable.mkdir()
    base = Profile.for_kind(kind)
    return base.replace(
        env={"TOKEN": text * (1 + size // len(text)), canary(owner).replace("-", "_") + "x" * 16: text},
        readable=(str(readable),),
        network=ProxyNetwork(allow=[f"{canary(owner)}.example.org"]) if network else NoNetwork(),
    )


def opened(
    supervisor: Supervisor, owner: str, size: int, place: Path, kind: str = "main", network: bool = False
) -> Session:
    workspace = place / canary(f"path{owner}")
    workspace.mkdir()
    (workspace / ".git" / "hooks").mkdir(parents=True)
    return supervisor.open_session(
        kind, workspace=workspace, profile=profile_of(owner, size, place, kind, network), agent_id=canary(owner)
    )


def main(place: Path, standby: int) -> None:
    found: dict[str, list[str]] = {}
    credentials = {"api.example.org": Credential(value=canary("host"))}
    with Supervisor(
        [echo, keep, scan, scan_kept], standby=standby, http=BrokeredHttp(credentials=credentials)
    ) as supervisor:
        number = 0
        for size in SIZES:
            number += 1
            owner = str(number)
            session = opened(supervisor, owner, size, place, network=number % 3 == 0)
            session.call("echo", {"text": canary(owner) * (1 + size // 30)}).unwrap()
            session.call("keep", {"text": canary(owner) * (1 + size // 30)}).unwrap()
            session.close()
            time.sleep(0.03)  # so that the zygote prespawns and the pool prewarms, as between sessions of a program
        scanning: list[Session] = []
        for kind in ("main", "worker", "main"):
            number += 1
            session = opened(supervisor, str(number), 100, place, kind)
            scanning.append(session)
            for name in ("scan", "scan_kept"):
                found[f"{kind} {number} {name}"] = session.call(name, {}).unwrap()
        # A profile without canaries, so that prewarmed cells hold none of their own.
        plain = place / "plain"
        plain.mkdir()
        for kind in ("main", "worker"):
            for _ in range(2):
                session = supervisor.open_session(kind, workspace=plain)
                found[f"plain {len(found)} {kind}"] = session.call("scan", {}).unwrap()
                session.close()
        found |= everywhere()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
