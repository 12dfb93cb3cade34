"""After a fork, a request that was gone through costs the zygote fewer copies of pages than one that was not."""

import os
import subprocess
import sys
import textwrap

import pytest

from toolcell.runner.cow import requests
from toolcell_sandbox.profile import CellProfile

PROGRAM = """
import os, resource, signal
from toolcell.runner.cow import requests
from toolcell_sandbox.profile import CellProfile

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    requests.rehearse(CellProfile())
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(), faults()
child = os.fork()
if not child:
    signal.pause()
try:
    print(faults(), faults())
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.mark.trick
def test_the_first_request_after_a_fork_copies_the_pages_and_the_second_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=True, timeout=60
    )
    first, second = map(int, done.stdout.split())
    assert first > 20
    assert second < first / 4


def test_it_leaves_no_descriptor_open() -> None:
    before = os.listdir("/proc/self/fd")
    requests.rehearse(CellProfile())
    assert os.listdir("/proc/self/fd") == before
