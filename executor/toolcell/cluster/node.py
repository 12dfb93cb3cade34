"""A node's part of a cluster: its own supervisor, and a seat for each driver. It knows nothing of Ray."""

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Sequence, Set
from typing import Any, Final

import psutil

from toolcell.backends.threads import NoThread, in_thread
from toolcell.dispatch.services import Services
from toolcell.errors import SandboxUnavailableError, UsageError
from toolcell.runtime.runtime import Runtime
from toolcell.runtime.status import problems_of
from toolcell.store.journal import Record
from toolcell.supervisor import Supervisor, runtime_of
from toolcell_sandbox.report import SandboxReport
from toolcell_tools.base import base_tools

from .kill_timer import KillTimer, clock_s
from .link import pack, unpack
from .messages import PROTOCOL, NodeTold, fields_of
from .node_backends import NodeBackends, PlacedBackends
from .seat import Seat
from .sent.seat_files import NodeFiles
from .terms import NodeTerms

__all__ = ["OK", "REFUSED", "UNFIT", "UNKNOWN", "Node"]

_log = logging.getLogger("toolcell.cluster")
OK: Final = "ok"
UNKNOWN: Final = "unknown"
"""The status of an exchange with a node that has lost, or never had, the driver's calls."""
REFUSED: Final = "refused"
"""The status of an exchange with the wrong token."""
UNFIT: Final = "unfit"
"""The status of a driver's first exchange if the node cannot meet the driver's terms. Its only batch is the reason."""
LEAST_MEMORY: Final = 0.03
"""The least part of a machine's memory that must be available. With less, the node reports a problem."""
STORE_BYTES: Final = 4 * 1024 * 1024 * 1024
"""The default bound of the contents of sent workspaces that a node keeps."""
DEAF_S: Final = 0.05
"""After its event loop was blocked for so many seconds, a node may have exchanges that it has not read yet."""
END_LEASES: Final = 1.5
"""After so many leases since its lease was renewed, a driver's sessions end, also if it may have sent an exchange."""
KILL_LEASES: Final = 1.75
"""After so many leases, the kernel kills a node that has not ended them. After two, the driver uses another node."""
CHECKS_A_LEASE: Final = 4
PARTS_OF_LEASE: Final = 3
"""A waiting exchange is answered after the lease divided by this number, so that the driver renews the lease."""


class Node:
    """A supervisor whose sessions and calls belong to drivers. `incarnation` is a random id, new at each start of the
    node. A driver that knows another id has lost its calls here. `kill_timer` ends the process if it is stopped or
    blocked for so long that a driver may have given it up."""

    def __init__(self, kill_timer: KillTimer | None = None) -> None:
        self._kill_timer = kill_timer
        self.incarnation = os.urandom(8)
        self.sent_files = NodeFiles(None, STORE_BYTES)  # until a driver sends workspaces
        self._files_terms: tuple[str | None, int] | None = None
        self._seats: dict[str, Seat] = {}
        self._problem = ""
        self._started = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._process = psutil.Process()
        self._supervisor: Supervisor | None = None  # until the first driver's terms are known
        self._quarantine: str | None = None
        self._backends = NodeBackends()

    def __repr__(self) -> str:
        return f"<Node {self.incarnation.hex()} · {len(self._seats)} drivers · {self._supervisor!r}>"

    @property
    def _runtime(self) -> Runtime:
        assert self._supervisor is not None, "a driver has a seat before the supervisor was started"
        return runtime_of(self._supervisor)

    @property
    def services(self) -> Services:
        return self._runtime.services

    @property
    def is_broken(self) -> bool:
        """Whether its supervisor has ended by itself, because one of its tasks failed."""
        return self._supervisor is not None and self._runtime.life.state != "up"

    async def start(self, terms: NodeTerms | None = None) -> None:
        """Start the supervisor with the terms of a driver, unless it runs. If it cannot start, the driver gets the
        reason, and the terms of the next driver are tried."""
        terms = terms or NodeTerms()
        async with self._started:
            if self._supervisor is not None:
                return
            supervisor = Supervisor(
                base_tools(),  # so that the zygotes preload what most tools need
                journal=self,
                allow_missing=terms.allow_missing,
                max_cells=terms.max_cells,
                quarantine=terms.quarantine,
            )
            try:
                await supervisor.start()
            except SandboxUnavailableError as error:
                self._problem = str(error)
                return
            self._problem, self._supervisor, self._quarantine = "", supervisor, terms.quarantine
            self._watching = asyncio.create_task(self._watch_leases())

    async def aclose(self) -> None:
        """End all sessions and processes."""
        if self._watching is not None:
            self._watching.cancel()
        for seat in list(self._seats.values()):
            self._end(seat)
        self._set_kill_timer()
        if self._supervisor is not None:
            await self._supervisor.aclose()
        await self._backends.close()
        await in_thread(self.sent_files.close)

    def write(self, record: Record) -> None:
        """Pass a record of the supervisor on to the driver whose session it is about."""
        seat = self._seats.get(record.session_id.partition(":")[0])
        if seat is not None:
            seat.write(record)

    async def exchange(self, data: bytes) -> bytes:
        """Take a driver's request. Reply as soon as the node has messages, at the latest after a part of the lease.

        A request is `[protocol, driver, token, link, incarnation, lease_s, is_leaving, again, ack, batches, terms,
        heard]`. A reply is `[status, incarnation, ack, batches, sent_at]`. `link` names the stream of batches. `again`
        asks for unacknowledged batches once more. The first request of a stream has terms and no incarnation. `sent_at`
        is the time of the node's clock, and `heard` is the `sent_at` of the newest reply that the driver has received.
        """
        protocol, *fields = unpack(data)
        if protocol != PROTOCOL:
            return self._reply(UNFIT, 0, [_other_protocol(protocol).encode()])
        driver, token, link, incarnation, lease_s, is_leaving, again, ack, batches, asked, heard = fields
        if incarnation and incarnation != self.incarnation:
            return self._reply(UNKNOWN)
        terms, backends = NodeTerms(), PlacedBackends()
        if not incarnation:
            terms = NodeTerms.from_wire(asked)
            await self.start(terms)
            if self._problem:
                return self._reply(OK, 0, [pack([1, [_told_problem(self._problem)]])])
            if why := terms.conflict(
                self.services.pool.most_cells, self._quarantine, *(self._files_terms or (None, None))
            ):
                return self._reply(UNFIT, 0, [why.encode()])
            if terms.store_bytes is not None and self._files_terms is None:
                self._files_terms = terms.directory, terms.store_bytes
                self.sent_files = NodeFiles(*self._files_terms)
            try:
                backends = await self._backends.of(terms)
            except UsageError as error:
                return self._reply(UNFIT, 0, [str(error).encode()])
        seat = self._seats.get(driver)
        if seat is not None and not hmac.compare_digest(seat.token, token):
            return self._reply(REFUSED)
        if seat is None or seat.name != link:
            if incarnation:  # its lease was over
                return self._reply(UNKNOWN)
            if seat is not None:
                self._end(seat)
            seat = Seat(self, driver, token, link, lease_s, backends, is_durable=terms.is_durable)
            self._seats[driver] = seat
            self._set_kill_timer()
        seat.renewed_at = max(seat.renewed_at, heard)
        if seat.is_over_after(END_LEASES):  # the request has waited too long: its driver may use another node by now
            self._end(seat)
            return self._reply(UNKNOWN)
        if is_leaving:
            found = await seat.leave(lambda: self._is_serving(driver))
            self._end(seat)
            return self._reply(OK, seat.outbox.received, found)
        found = await seat.exchange(ack, batches, again=again, park_s=lease_s / PARTS_OF_LEASE)
        return self._reply(OK, seat.outbox.received, found)

    async def files(self, data: bytes, payload: bytes) -> bytes:
        """Answer a driver's request about files: `[driver, token, link, request]` with a payload. The reply is
        `[status, answer]`."""
        driver, token, link, request = unpack(data)
        seat = self._seats.get(driver)
        if seat is None or seat.name != link:
            return pack([UNKNOWN, None])
        if not hmac.compare_digest(seat.token, token):
            return pack([REFUSED, None])
        if seat.is_over_after(END_LEASES):
            return pack([UNKNOWN, None])
        return pack([OK, await seat.files.handle(request, payload)])

    def _is_serving(self, driver: str) -> bool:
        cells = self._runtime.pool.cells.values()
        return self.is_serving({key for cell in cells if (key := cell.spec.key.session_id).startswith(f"{driver}:")})

    def is_serving(self, session_keys: Set[str]) -> bool:
        """Whether a cell of these sessions is alive, or the audit of an ended kept process is pending."""
        runtime = self._runtime
        if any(cell.spec.key.session_id in session_keys for cell in runtime.pool.cells.values()):
            return True
        return runtime.protection.awaits_kept and not runtime.pool.kept_writable()

    def _reply(self, status: str, ack: int = 0, batches: Sequence[bytes] = ()) -> bytes:
        return pack([status, self.incarnation, ack, list(batches), clock_s()])

    def told(self) -> NodeTold:
        """The node's state, for a driver."""
        services = self.services
        pool = services.pool
        return NodeTold(
            report=pool.report.to_wire(),
            problem="",
            most_cells=pool.most_cells,
            counts=pool.counts(),
            zygotes=pool.status().zygotes,
            waiting=len(list(pool.waiting)),
            sessions=sum(len(seat.sessions) for seat in self._seats.values()),
            memory_bytes=int(self._process.memory_info().rss),
            problems=[*problems_of(services), *_problems_of_machine()],
        )

    async def _watch_leases(self) -> None:
        while True:
            now = time.monotonic()
            pauses = [
                min(seat.heard_at + seat.lease_s - now, seat.lease_s / CHECKS_A_LEASE) for seat in self._seats.values()
            ]
            pause_s = max(0.05, min([1.0, *pauses]))
            await asyncio.sleep(pause_s)
            was_deaf = time.monotonic() - now - pause_s > DEAF_S
            for seat in list(self._seats.values()):
                is_silent = time.monotonic() - seat.heard_at > seat.lease_s
                if (is_silent and not was_deaf) or seat.is_over_after(END_LEASES):
                    _log.warning("the driver %s was not heard for %g s: its sessions end", seat.driver, seat.lease_s)
                    self._end(seat)
            self._set_kill_timer()

    def _set_kill_timer(self) -> None:
        """Let the kernel kill this process at the first time at which sessions should have ended long ago."""
        if self._kill_timer is not None:
            times = (seat.renewed_at + KILL_LEASES * seat.lease_s for seat in self._seats.values())
            self._kill_timer.set(min(times, default=None))

    def _end(self, seat: Seat) -> None:
        seat.end()
        self._seats.pop(seat.driver, None)
        if self._runtime.life.state == "up":
            self.services.in_background(self._end_files, seat)

    async def _end_files(self, seat: Seat) -> None:
        try:
            await seat.files.end()
        except (OSError, NoThread) as error:  # the files stay until the node restarts; other drivers are not affected
            _log.warning("files of %s cannot be removed: %s", seat.driver, error)


def _problems_of_machine() -> list[str]:
    memory = psutil.virtual_memory()
    if memory.available >= LEAST_MEMORY * memory.total:
        return []
    return [f"The machine has {memory.available / 2**20:,.0f} MiB of memory left, of {memory.total / 2**20:,.0f} MiB."]


def _other_protocol(protocol: object) -> str:
    theirs = protocol if isinstance(protocol, int) else "an unknown one"
    return (
        f"The node's toolcell uses version {PROTOCOL} of the protocol of clusters, and the driver's uses {theirs}. "
        "Install the same version on all machines, and start the driver again."
    )


def _told_problem(problem: str) -> tuple[Any, ...]:
    report = SandboxReport((), "rootless").to_wire()
    return fields_of(NodeTold(report, problem, 0, {}, 0, 0, 0, 0, []))
