"""What programs do to their own priority and processors: it works, and ends with the call.

Source: own
"""

import os

from tests.escape.kit import Scene, all_of, tried

EXPECT = "ok"


def attack(scene: Scene) -> object:
    before = os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, os.getppid())
    first = min(os.sched_getaffinity(os.getppid()))
    answers = all_of(
        nice=tried(os.nice, 1),
        priority=tried(os.setpriority, os.PRIO_PROCESS, 0, 10),
        affinity=tried(os.sched_setaffinity, 0, {first}),
        policy=tried(os.sched_setscheduler, 0, os.SCHED_BATCH, os.sched_param(0)),
    )
    return answers if before == (0, 0) else f"it began at {before}"
