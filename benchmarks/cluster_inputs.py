"""What a call, a cell and a session cost on one machine: the inputs of the plan for a cluster, measured or given."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio

from toolcell import Session, Supervisor
from toolcell.supervisor import runtime_of

from .crowd import throughput
from .machine import core_list
from .many import Forgetful
from .processes import descendants, memory_of, of_the_pool
from .workload import caller, echo

CELLS = 20
"""The cells over which the cost of a cell is averaged."""
SETTLE_S = 0.3
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostInputs:
    """Seconds and bytes. `call_cpu_s` is the processor time of all processes of a node but its actor for a fresh call,
    and `cell_s` that for a cell. `session_bytes` are those of a parked session in the supervisor, `cell_bytes` those of
    a cell with its standby (PSS).

    `driver_call_s` and `loop_call_s` are the processor time of the driver and of the node's actor for a call that
    crosses alone, and the others for a call in a batch. `hop_s` is the time between them, one way. `cluster_ray.py`
    measures them. `batch` is the number of calls in a message.
    """

    loop_call_s: float = 0.0020
    loop_batched_s: float = 0.00055
    call_cpu_s: float = 0.0021
    cell_s: float = 0.007
    open_s: float = 0.0002
    session_bytes: float = 5.4e3
    cell_bytes: float = 6.0e6
    driver_call_s: float = 0.00145
    driver_batched_s: float = 0.00014
    batch: int = 1
    hop_s: float = 0.00057
    store_bytes_s: float = 2.0e9

    @property
    def loop_s(self) -> float:
        return self.loop_call_s if self.batch == 1 else self.loop_batched_s

    @property
    def driver_s(self) -> float:
        return self.driver_call_s if self.batch == 1 else self.driver_batched_s


def _cpu_s(pids: Iterable[int]) -> float:
    """The processor time of these processes and of the children that they have reaped (proc_pid_stat(5))."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total * TICK_S


async def measured(workspace: Path, seconds: float, sessions: int) -> CostInputs:
    """Measure a supervisor of this machine, for so many seconds, with so many parked sessions. Takes root, because an
    ordinary user may not read the memory of cells."""
    async with Supervisor([echo], journal=Forgetful(), max_cells=2 * CELLS) as supervisor:
        runtime_of(supervisor).pool.reserve.enabled = False  # each cell is made for its session
        active = await _opened(supervisor, workspace, "first", 2)
        await _called(active)
        held, before_s = _pool_bytes(), _cpu_s(of_the_pool())
        active += await _opened(supervisor, workspace, "more", CELLS)
        await _called(active[2:])
        cell_s = (_cpu_s(of_the_pool()) - before_s) / CELLS
        cell_bytes = (_pool_bytes() - held) / CELLS

        loop_s, call_cpu_s = await _of_calls(active[: 2 * len(core_list())], seconds)

        before_bytes = memory_of(os.getpid()).uss
        directories = [workspace / f"parked-{number}" for number in range(sessions)]
        for each in directories:
            each.mkdir()
        began = time.perf_counter()
        kept = [await supervisor.open_session("main", workspace=each) for each in directories]
        open_s = (time.perf_counter() - began) / sessions
        session_bytes = (memory_of(os.getpid()).uss - before_bytes) / len(kept)
    return CostInputs(
        loop_batched_s=loop_s,
        call_cpu_s=call_cpu_s - loop_s,
        cell_s=cell_s,
        open_s=open_s,
        session_bytes=max(1.0, session_bytes),
        cell_bytes=cell_bytes,
    )


async def _opened(supervisor: Supervisor, workspace: Path, name: str, number: int) -> list[Session]:
    made: list[Session] = []
    for each in range(number):
        directory = workspace / f"{name}-{each}"
        directory.mkdir()
        made.append(await supervisor.open_session("main", workspace=directory))
    return made


async def _called(sessions: list[Session]) -> None:
    """Give each session a cell, with a standby."""
    for session in sessions:
        (await session.call("echo", {"text": "warm"})).unwrap()
    await anyio.sleep(SETTLE_S)


async def _of_calls(active: list[Session], seconds: float) -> tuple[float, float]:
    """The loop's processor time and that of all processes, for a call, when all cores are at work."""
    before_s, loop_before_s = _cpu_s([os.getpid(), *descendants(os.getpid())]), time.process_time()
    per_s = await throughput([caller(each, "echo") for each in active], seconds)
    calls = per_s * seconds
    loop_s = (time.process_time() - loop_before_s) / calls
    return loop_s, (_cpu_s([os.getpid(), *descendants(os.getpid())]) - before_s) / calls


def _pool_bytes() -> int:
    return sum(memory_of(pid).pss for pid in of_the_pool())
