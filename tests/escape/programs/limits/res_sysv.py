"""System V and POSIX shared memory, queues and semaphores, which outlive a process.

Source: R31
"""

import os

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(
        shm=asked("shmget", 0, 4096, 0o1600),
        message=asked("msgget", 0, 0o1600),
        semaphore=asked("semget", 0, 1, 0o1600),
        queue=asked("mq_open", "q", os.O_CREAT | os.O_RDWR, 0o600, None),
    )
