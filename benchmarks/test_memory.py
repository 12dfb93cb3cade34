"""The memory that an idle cell and a standby have for themselves, and what each further cell costs."""

from pathlib import Path

import anyio
import pytest

from toolcell import Session, Supervisor

from .conftest import Publish
from .interleave import Measured
from .processes import IDLE, WAIT, cells_of, memory_of, of_the_pool, python
from .replay import recorded_time
from .report import Curve, Figure
from .workload import caller, check_whole, echo

pytestmark = pytest.mark.benchmark(timer=recorded_time)

SETTLE_S = 0.1  # for a standby to be forked and to warm up
POOL = (
    "import multiprocessing, os\n"
    "from concurrent.futures import ProcessPoolExecutor\n"
    "with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('HOW')) as pool:\n"
    "    pool.submit(str, 'text').result()\n"
    f"    print(pool.submit(os.getpid).result(), flush=True); {WAIT}"
)


def test_memory_of_an_idle_cell(publish: Publish) -> None:
    publish(memory, 8)


async def memory(rounds: int, workspace: Path) -> Figure:
    inits: list[list[float]] = []
    standbys: list[list[float]] = []
    idle: list[list[float]] = []
    points: list[tuple[float, float]] = []
    async with Supervisor(tools=[echo], max_cells=2 * rounds) as supervisor:
        check_whole(supervisor)
        sessions: list[Session] = []
        for number in range(rounds):
            directory = workspace / str(number)
            directory.mkdir()
            sessions.append(await supervisor.open_session("main", workspace=directory))
            await caller(sessions[-1], "echo")("a text")
            await anyio.sleep(SETTLE_S)
            points.append((number + 1, sum(memory_of(pid).pss for pid in of_the_pool()) / 1024**2))
        for session in sessions:
            await caller(session, "echo")("a text")
        await anyio.sleep(SETTLE_S)
        for init, children in cells_of(supervisor):
            (standby,) = children
            inits.append([memory_of(init).uss])
            standbys.append([memory_of(standby).uss])
            idle.append([memory_of(init).uss + memory_of(standby).uss])
    further = (points[-1][1] - points[0][1]) / (len(points) - 1) * 1024**2
    measured = [
        Measured("idle cell: init + standby, USS", "ours", idle),
        Measured("standby, USS", "ours", standbys),
        Measured("init, USS", "ours", inits),
        Measured("each further cell, PSS of all", "ours", [[further]] * rounds),
        Measured("python -I -S, USS", "peer", _each(rounds, IDLE, "-I", "-S")),
        *(
            Measured(f"ProcessPoolExecutor worker ({how}), USS", "peer", _each(rounds, POOL.replace("HOW", how)))
            for how in ("fork", "forkserver")
        ),
    ]
    curve = Curve("zygotes, cells and standbys", "ours", "sessions with a cell", "MiB of PSS", points)
    title = "Private memory of an idle cell, and of what else waits for work"
    return Figure("memory", title, measured, unit="B", curves=[curve])


def _each(times: int, program: str, *options: str) -> list[list[float]]:
    found: list[list[float]] = []
    for _ in range(min(times, 4)):
        with python(program, *options) as pid:
            found.append([memory_of(pid).uss])
    return [found[number % len(found)] for number in range(times)]
