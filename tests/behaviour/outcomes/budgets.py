"""`python -I budgets.py CALLS NAME...`: CALLS sessions call each hostile tool at once, while an innocent session works.

It prints a line of JSON for each tool: the growth of the supervisor's memory, the endings of the calls, and the results
of the innocent session. `test_budgets.py` runs it in a separate process, because memory that an earlier test has freed
would hide the growth. For the same reason, the growth under every tool counts from before the first tool.
"""

import ctypes
import gc
import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import anyio

from toolcell import (
    HttpReply,
    HttpRequest,
    Limits,
    MemoryRecord,
    Overloaded,
    Profile,
    Session,
    SessionKind,
    Supervisor,
    tool,
)

sys.path.insert(0, str(Path(__file__).parents[3]))  # for `tests`
from tests import misbehaving as m

MIB = 1024 * 1024
PATIENCE_S = 120.0
LIMITS = Limits(wall_s=PATIENCE_S, cpu_s=60.0, memory_bytes=256 * MIB, output_bytes=64 * MIB)
HOSTILE_S = 3.0  # what many calls at once need to take what no budget would give them
HOSTILE_ALONE_S = 0.8
OUTPUT_S = 10.0  # for the tool that a limit ends before
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
    """A memory with very long answers, and a channel that never accepts a message."""

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


def trimmed_rss() -> int:
    """The memory of this process after malloc has returned its free memory."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return rss()


class Peak:
    """The peak memory of this process while the context is entered."""

    def __enter__(self) -> "Peak":
        self.most = trimmed_rss()
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


async def slowly(*_: object) -> None:
    await anyio.sleep_forever()


async def attacked(name: str, innocent: Session, sessions: list[Session], before: int) -> dict[str, Any]:
    """The outcome of a tool that all `sessions` call at once, while `innocent` works."""
    found: dict[str, Any] = {"name": name, "endings": [], "wrong": []}
    for each in (innocent, *sessions):
        assert (await each.call("echo", {"value": 1}, timeout=PATIENCE_S)).output == 1
    over = anyio.Event()
    deadline = HOSTILE_S if len(sessions) > 1 else OUTPUT_S if name == "output" else HOSTILE_ALONE_S

    async def attack(each: Session) -> None:
        arguments = TOOLS[name][1]
        timeout = deadline
        result = await each.call(name, arguments, timeout=timeout, on_progress=slowly, on_output=slowly)
        while len(sessions) == 1 and isinstance(result.error, Overloaded):  # its time was over before it began
            timeout *= 2
            result = await each.call(name, arguments, timeout=timeout, on_progress=slowly, on_output=slowly)
        found["endings"].append(result.error.kind if result.error else "none")
        if len(found["endings"]) == len(sessions):
            over.set()

    async def work() -> None:
        while not over.is_set():
            result = await innocent.call("echo", {"value": "x" * 10_000}, timeout=PATIENCE_S)
            if result.output != "x" * 10_000:
                found["wrong"].append(repr(result.error or result.output)[:400])
            result = await innocent.call("sleep_for_ever", {}, timeout=DEADLINE_S)
            if result.error is None or result.error.kind not in ("timeout", "overloaded"):  # in its time
                found["wrong"].append(repr(result.error or result.output)[:400])

    with Peak() as peak:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            for each in sessions:
                group.start_soon(attack, each)
    found["growth"] = (peak.most - before) / MIB
    found["endings"] = {kind: found["endings"].count(kind) for kind in set(found["endings"])}
    return found


async def main(calls: int, names: list[str]) -> None:
    needs = {"memory.read", "channel", "http"}
    hostile = [tool(TOOLS[name][0], name=name, needs=needs) for name in names]
    profile = Profile.for_kind("main").replace(limits=LIMITS, http=["* https://a.example.org"])
    backends = Backends()
    async with Supervisor(
        [*hostile, tool(m.echo), tool(m.sleep_for_ever)],
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
            before = trimmed_rss()
            for name in names:
                print(json.dumps(await attacked(name, innocent, sessions, before)), flush=True)
            for each in (innocent, *sessions):
                await each.close()


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), sys.argv[2:])
