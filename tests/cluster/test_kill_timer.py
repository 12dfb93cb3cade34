"""The kernel's timer that kills a process, even if it is stopped."""

import signal
import subprocess
import sys
import time

from tests.helpers import PATIENCE_S

SLEEPER = """
import sys, time
from toolcell.cluster.kill_timer import KillTimer, clock_s
timer = KillTimer()
timer.set(clock_s() + float(sys.argv[1]))
{then}
print("set", flush=True)
time.sleep(float(sys.argv[2]))
"""


def start(first_s: float, sleep_s: float, then: str = "") -> subprocess.Popen[bytes]:
    """Start a process that sets its timer, and wait until it has."""
    command = [sys.executable, "-c", SLEEPER.format(then=then), str(first_s), str(sleep_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"set\n"
    process.stdout.close()
    return process


def test_a_stopped_process_is_killed_at_the_time() -> None:
    began_at = time.monotonic()
    process = start(5.0, 2 * PATIENCE_S)
    process.send_signal(signal.SIGSTOP)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    assert time.monotonic() - began_at >= 5.0


def test_a_process_that_sets_its_timer_again_or_clears_it_lives() -> None:
    assert start(5.0, 6.0, "timer.set(clock_s() + 3600.0)").wait(PATIENCE_S) == 0
    assert start(5.0, 6.0, "timer.set(None)").wait(PATIENCE_S) == 0


def test_a_time_that_has_passed_kills_at_once() -> None:
    process = start(3600.0, 2 * PATIENCE_S, "print('set', flush=True); timer.set(0.0)")
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
