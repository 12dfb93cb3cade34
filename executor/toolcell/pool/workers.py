"""Tasks for what calls ask of the supervisor: each waits for the next such thing when it has done one."""

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from anyio.abc import TaskGroup

from .reactor import Reactor, Waiter

Work = Callable[..., Coroutine[Any, Any, None]]
MAX_IDLE = 16  # tasks that wait for work; making one takes as long as ten messages to a cell


class Workers:
    """Runs work in `tasks`, until these end. An error of the work is an error in `tasks`."""

    def __init__(self, tasks: TaskGroup, reactor: Reactor) -> None:
        self._tasks = tasks
        self._reactor = reactor
        self._idle: list[Waiter[tuple[Work, tuple[object, ...]]]] = []

    def start(self, work: Work, *args: object) -> None:
        """Begin now, or in the next turn of the loop: `work(scope, *args)`, which ends where `scope` is cancelled."""
        if self._idle:
            self._idle.pop().set((work, args))
        else:
            self._tasks.start_soon(self._run, work, args)

    async def _run(self, work: Work, args: tuple[object, ...]) -> None:
        with anyio.CancelScope() as scope:  # one for all of its work: making one takes as long as a message
            await work(scope, *args)
            while not scope.cancel_called and len(self._idle) < MAX_IDLE:
                more: Waiter[tuple[Work, tuple[object, ...]]] = self._reactor.waiter()
                self._idle.append(more)
                work, args = await more
                await work(scope, *args)
