"""What it takes until something can be called at all: the import, and a supervisor's start with its first call."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from .conftest import Publish
from .floors import start_python
from .interleave import Case, interleave
from .replay import recorded_time
from .report import Figure

pytestmark = pytest.mark.benchmark(timer=recorded_time)

PROGRAMS = {
    "import toolcell": "import toolcell",
    "from toolcell import Supervisor, tool": "from toolcell import Supervisor, tool",
    "python -I -c pass": "pass",
    "import concurrent.futures.process": "import concurrent.futures.process",
}
FIRST = "supervisor start → first result"


def test_the_start(publish: Publish) -> None:
    publish(start, 8)


async def start(rounds: int, workspace: Path) -> Figure:
    with ExitStack() as stack:
        blocks = {name: stack.enter_context(start_python(2, "-c", program)).block for name, program in PROGRAMS.items()}

        async def first_call() -> list[float]:
            script = str(Path(__file__).with_name("first_call.py"))
            command = [sys.executable, "-I", script, str(workspace)]
            return [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)]

        names = list(PROGRAMS)
        cases = [
            *(Case(name, "ours", blocks[name]) for name in names[:2]),
            Case(FIRST, "ours", first_call),
            Case(names[2], "floor", blocks[names[2]]),
            Case(names[3], "peer", blocks[names[3]]),
        ]
        return Figure("start", "From nothing to the first result", await interleave(cases, rounds))
