"""The processor time of the import, compared with well-known libraries."""

import resource
import statistics
import subprocess
import sys

import pytest

HELP = "import sys; sys.argv = ['toolcell', '--help']; from toolcell.cli import main; main()"


def cpu_s(code: str) -> float:
    """The processor time of a Python process that runs this code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("ours", "theirs", "times"),
    [
        ("from toolcell import Supervisor, tool", "from pydantic import BaseModel", 2.0),
        (HELP, "import click", 1.5),
    ],
    ids=["import", "help"],
)
def test_an_import_costs_little_more_than_that_of_a_library_it_is_used_with(
    ours: str, theirs: str, times: float
) -> None:
    for code in (ours, theirs):
        cpu_s(code)  # which writes its bytecode
    pairs = [(cpu_s(ours), cpu_s(theirs)) for _ in range(7)]
    assert statistics.median(own / other for own, other in pairs) <= times, pairs
