"""The pool as its supervisor uses it, so that another pool can run the calls on other machines."""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from toolcell.store.journal import Record
from toolcell.wire.budget import Budgets
from toolcell_sandbox.report import SandboxReport

from .deadlines import Deadline
from .reactor import Reactor, Waiter
from .run import CellKey, Outcome, Run

if TYPE_CHECKING:
    from toolcell.workplaces.workspace_return import WorkspaceReturn

__all__ = ["CallPool", "Cluster", "PoolHost", "SupervisorStatus"]


@dataclass(frozen=True)
class SupervisorStatus(SandboxReport):
    """The sandbox report of the start, and the present state of the zygotes, the processes that make cells."""

    zygotes: int = 0
    """The number of live zygotes."""
    zygote_deaths: int = 0
    """The number of zygotes that have died since the start."""
    next_attempt_s: float | None = None
    """Seconds until the next zygote is started, if the pool pauses after a series of deaths."""
    problem: str = ""
    """The last problem with a zygote, "" if none is recent."""
    faults: int = 0
    """The number of the supervisor's own steps that have failed. Each has ended its cell or its zygote, or was tried
    again; the log has the errors."""

    def __str__(self) -> str:
        pause = "" if self.next_attempt_s is None else f", next attempt in {self.next_attempt_s:.2g} s"
        lines = [super().__str__(), f"zygotes: {self.zygotes} alive, {self.zygote_deaths} died{pause}"]
        if self.faults:
            lines.append(f"failed steps of the supervisor: {self.faults}")
        return "\n".join([*lines, self.problem] if self.problem else lines)


class CallPool(Protocol):
    """Runs `Run`s in cells, here or elsewhere. `Pool` has the contracts of its methods. Everything but `start` and
    `close` is called on the loop and returns at once."""

    @property
    def report(self) -> SandboxReport: ...
    @property
    def budgets(self) -> Budgets: ...
    @property
    def waiting(self) -> Iterable[Run]: ...
    @property
    def most_cells(self) -> int: ...
    @property
    def placed(self) -> frozenset[str]:
        """The handles that its nodes serve in place of this supervisor: "memory", "web", or none."""
        ...

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    def abandon(self) -> None: ...
    def submit(self, run: Run) -> Waiter[Outcome]: ...
    def cancel(self, run: Run) -> None: ...
    def release(self, run: Run) -> None: ...
    def tell_end(self, session_id: str, reason: str, least_s: float, most_s: float) -> list[Run]: ...
    def park_session(self, session_id: str, why: str) -> None: ...
    def end_session(self, session_id: str) -> None: ...
    def session_opened(
        self, session_id: str, parent_id: str | None, workspace: str, protected: tuple[str, ...]
    ) -> None:
        """Note a new session."""
        ...

    def preparing(self, session_id: str) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Prepares the workspace of a new session; None if nothing is to be done. Raises UsageError."""
        ...

    def returning(self, session_id: str, *, last: bool) -> Callable[[], Coroutine[Any, Any, "WorkspaceReturn"]] | None:
        """Brings the changes in a session's workspace back to this machine; None if they are here. With `last`, after
        its calls have ended."""
        ...

    def at(self, when: float, action: Callable[[], None]) -> Deadline: ...
    def forget_deadline(self, deadline: Deadline) -> None: ...
    def kept_writable(self) -> list[tuple[str, ...]]: ...
    def is_serving(self, key: CellKey) -> bool: ...
    def running(self) -> list[Run]: ...
    def counts(self) -> dict[str, int]: ...
    def nodes(self) -> list[dict[str, Any]]: ...
    def losses(self) -> list[str]:
        """The nodes that were lost with calls or sessions a short time ago, in sentences."""
        ...

    def status(self) -> SupervisorStatus: ...


@dataclass(frozen=True, slots=True)
class PoolHost:
    """What a supervisor gives to the pool of its cluster."""

    reactor: Reactor
    in_background: Callable[..., None]
    """Runs a coroutine function with its arguments until the supervisor ends."""
    write: Callable[[Record], None]
    """Writes into the journal."""
    allow_missing: frozenset[str]
    """The mechanisms of the sandbox that may be missing on a node."""
    quarantine: str | None
    """The directory for protected names; None for a temporary one."""
    is_durable: bool
    """Whether the journal has a record of each operation."""
    on_session_lost: Callable[[str, str], None]
    """Closes a session as failed: its id, and why."""
    tell_saved: Callable[[Callable[[Path, str], None]], None]
    """Takes a function that is called, in a thread, with each workspace and the path of an output saved there."""


@runtime_checkable
class Cluster(Protocol):
    """Other machines that run calls: `toolcell.cluster.RayCluster`."""

    def pool(self, host: PoolHost) -> CallPool:
        """A pool that runs calls on the cluster's nodes."""
        ...
