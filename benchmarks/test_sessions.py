"""Ten thousand sessions, a hundred of them active: what one costs to open and to keep, and what it costs the others."""

import json
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from .conftest import Publish
from .interleave import Measured
from .processes import IDLE, memory_of, python
from .replay import recorded_time
from .report import Curve, Figure

pytestmark = pytest.mark.benchmark(timer=recorded_time)

ROOT = Path(__file__).parent.parent


def test_ten_thousand_sessions(publish: Publish) -> None:
    publish(sessions, 20)


def test_what_a_parked_session_holds(publish: Publish) -> None:
    publish(parked, 20)


async def sessions(rounds: int, workspace: Path) -> Figure:
    found = run(rounds)
    blocks = len(found["many"])
    measured = [
        Measured("open a session", "ours", _blocks(found["opened"], blocks)),
        Measured(f"second call, {found['open']:,} open", "ours", found["many"]),
        Measured("first call, which makes a cell", "ours", _blocks(found["first"], blocks)),
        Measured(f"second call, {found['active']:,} open", "floor", found["few"]),
        Measured("start a Python for a session", "peer", _blocks(started(), blocks)),
    ]
    return Figure("sessions", f"{found['open']:,} sessions, {found['active']} of them active", measured)


async def parked(rounds: int, workspace: Path) -> Figure:
    found = run(rounds)
    with python(IDLE, "-I", "-S") as pid:
        alone = memory_of(pid).uss
    measured = [
        Measured("never called", "ours", [[found["never_called"]]]),
        Measured("called once", "ours", [[found["never_called"] + found["called"]]]),
        Measured("python -I -S, USS", "peer", [[alone]]),
    ]
    curves = [Curve("the supervisor", "ours", "parked sessions", "MiB of USS", found["points"])]
    return Figure("parked", "What a parked session holds", measured, unit="B", curves=curves)


@cache
def run(rounds: int) -> dict[str, Any]:
    """Both figures are of one crowd."""
    numbers = 500 * rounds, 5 * rounds, max(2, rounds // 6)
    with TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.many", *map(str, numbers), directory]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return {**found, "open": numbers[0], "active": numbers[1]}


def _blocks(samples: list[float], number: int) -> list[list[float]]:
    return [samples[each::number] for each in range(number)]


def started() -> list[float]:
    """The seconds that starting an idle Python takes until it says so."""
    taken: list[float] = []
    for _ in range(10):
        start = time.perf_counter()
        with python(IDLE, "-I", "-S"):
            taken.append(time.perf_counter() - start)
    return taken
