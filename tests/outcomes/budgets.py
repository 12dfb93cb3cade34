"""`python -I budgets.py NAME CALLS`: have so many sessions call this hostile tool at once, beside an innocent one.

Prints a line of JSON: how far the supervisor's memory grew, how the calls ended, and how the innocent session fared.
Run by `test_budgets.py`, in a process of its own: memory that another test has given back would hide what this takes.
"""

import ctypes
import gc
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import anyio

from toolcell import HttpReply, HttpRequest, Limits, MemoryRecord, Profile, Session, SessionKind, Supervisor, tool
from toolcell.testing import misbehaving as m

MIB = 1024 * 1024
LIMITS = Limits(wall_s=20.0, cpu_s=20.0, memory_bytes=256 * MIB, output_bytes=64 * MIB)
HOSTILE_S = 4.0
DEADLINE_S = 0.5

SEARCH = {"operation": "memory.search", "arguments": {"query": "q", "limit": 100}, "times": 150}
TOOLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "memory": (m.ask_and_read_nothing, SEARCH),
    "requests": (m.send_the_largest_requests, {}),
    "text": (m.send_requests_of_wide_text, {}),
    "objects": (m.send_requests_of_many_objects, {}),
    "progress": (m.flood_with_progress, {}),
    "logs": (m.flood_with_logs, {}),
    "output": (m.flood_the_output, {}),
    "commands": (m.flood_with_output, {}),
    "half": (m.send_all_but_the_end_of_a_result, {"size": 15 * MIB}),
}


class Backends:
    """Memory that has much to tell, and a channel that never takes a message."""

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        await anyio.sleep(0.001)
        return [MemoryRecord(str(number), f"{number:08}" * 8_000) for number in range(limit)]

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        return "1"

    async def send(self, text: str, *, sender: str) -> None:
        await anyio.sleep_forever()

    async def approve(self, request: object) -> Any:
        raise NotImplementedError


class NoAnswer:
    """An HTTP client whose servers never answer."""

    async def send(self, request: HttpRequest) -> HttpReply:
        await anyio.sleep_forever()
        return HttpReply(200)


def rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Peak:
    """The largest memory of this process while it is entered."""

    def __enter__(self) -> "Peak":
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        self.before = self.most = rss()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.005):
            self.most = max(self.most, rss())

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.most - self.before


async def slowly(*_: object) -> None:
    await anyio.sleep_forever()


async def main(name: str, calls: int) -> dict[str, object]:
    function, arguments = TOOLS[name]
    hostile = tool(function, name="hostile", needs={"memory.read", "channel", "http"})
    profile = Profile.for_kind("main").replace(limits=LIMITS, http=["* https://a.test"])
    backends = Backends()
    found: dict[str, Any] = {"endings": [], "latest": 0.0, "late": 0.0, "wrong": []}
    async with Supervisor(
        [hostile, tool(m.echo), tool(m.sleep_for_ever)],
        profiles={SessionKind.MAIN: profile},
        max_cells=calls + 8,
        http=NoAnswer(),
    ) as supervisor:
        with tempfile.TemporaryDirectory() as root:

            async def session(number: int) -> Session:
                path = Path(root, str(number))
                return await supervisor.open_session("main", workspace=path, memory=backends, channel=backends)

            innocent = await session(0)
            sessions = [await session(number) for number in range(1, calls + 1)]
            for each in (innocent, *sessions):
                assert (await each.call("echo", {"value": 1})).output == 1
            over = anyio.Event()

            async def attack(each: Session) -> None:
                result = await each.call("hostile", arguments, timeout=HOSTILE_S, on_progress=slowly, on_output=slowly)
                found["endings"].append(result.error.kind if result.error else "none")
                if len(found["endings"]) == calls:
                    over.set()

            async def work() -> None:
                while not over.is_set():
                    began = time.monotonic()
                    result = await innocent.call("echo", {"value": "x" * 10_000}, timeout=15.0)
                    found["latest"] = max(found["latest"], time.monotonic() - began)
                    if result.output != "x" * 10_000:
                        found["wrong"].append(repr(result.error or result.output)[:400])
                    began = time.monotonic()
                    result = await innocent.call("sleep_for_ever", {}, timeout=DEADLINE_S)
                    if result.error is None or result.error.kind not in ("timeout", "overloaded"):  # in its time
                        found["wrong"].append(repr(result.error or result.output)[:400])
                    found["late"] = max(found["late"], time.monotonic() - began - DEADLINE_S)

            with Peak() as peak:
                async with anyio.create_task_group() as group:
                    group.start_soon(work)
                    for each in sessions:
                        group.start_soon(attack, each)
            found["growth"] = peak.growth / MIB
            for each in (innocent, *sessions):
                await each.close()
    found["endings"] = {kind: found["endings"].count(kind) for kind in set(found["endings"])}
    return found


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, sys.argv[1], int(sys.argv[2]))))
