"""Prespawned cells: processes that are started before their session is known.

Most steps of making a cell are the same for all cells: the fork, the namespaces, the mounts of the system paths. A
prespawned cell has done these steps and waits. It knows no session and no workspace, and no foreign code has run in it.
An order, with its descriptors, makes it the cell of a session.
"""

import os
import select
import socket
from collections.abc import Sequence
from dataclasses import replace

from . import view
from .errors import SandboxError
from .identity import Identity
from .kernel.descriptors import LOWEST_OWN, raised, receive_fds
from .network import NoNetwork
from .order import Become, Order, Sealed, pack, unpack
from .profile import CellProfile, is_below
from .report import SandboxReport
from .spawn import Main, OnFailure, begin, prepare, terminate
from .view import View

_NEEDED = frozenset({"mount_namespace", "pid_namespace", "net_namespace", "mount_setattr", "pivot_root", "pidfd"})
_MAX_FDS = 128  # descriptors of one message; the kernel allows 253 (SCM_MAX_FD, unix(7))
_MAX_BYTES = 128 * 1024  # of one message; a socket buffer is larger (net.core.wmem_default)


class Prespawned:
    """One prespawned process: a child of the caller, which reaps it. `take` makes it a cell, `end` ends it.

    It dies with its maker, and ends when this object is deleted. While it waits, it holds a copy of all mounts of the
    host. `mounts` is a descriptor that gets POLLPRI when they change (proc_pid_mounts(5)). Then the process fits no
    order any more and may keep a file system busy, so the caller must end it.
    """

    def __init__(
        self,
        main: Main,
        failed: OnFailure,
        *,
        identity: Identity,
        system: Sequence[str],
        proc: bool,
        report: SandboxReport,
        allow_missing: frozenset[str] = frozenset(),
    ) -> None:
        """Start a cell for profiles with these `system` paths and `proc`, and identities like this one. `is_possible`
        must hold. Other fields of a profile are not passed: they would be in the memory of another session's cell.

        `main` and `failed` are as in `spawn`. Raises SandboxError if it cannot be started.
        """
        self._like = CellProfile(system=tuple(system), proc=proc)
        self._found = view.find_system(self._like, identity)
        common = prepare(self._like, identity=identity, report=report, allow_missing=allow_missing, system=self._found)
        ahead = mounted_ahead(common.view)
        self._base = replace(common.base, binds=ahead.binds, links=ahead.links)
        self._report = report
        self.mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stale = False
        ordered = False

        def receive() -> Order:
            nonlocal ordered
            told, received = _received(theirs)
            become: Become = unpack(told)
            sealed, *namespaces = _placed(become.streams, received)
            ordered = True
            owners = [(uid, gid) for uid, gid in become.owners]
            return self._order_of(become, sealed, dict(zip(owners, namespaces, strict=True)))

        def tell(error: SandboxError) -> None:
            if ordered:  # without an order, nobody waits for this cell
                failed(error)

        try:
            self.child = begin(self._base, receive, main, tell, (theirs.fileno(),))
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()

    def __repr__(self) -> str:
        return f"<Prespawned with {len(self._base.binds)} paths in place>"

    @staticmethod
    def is_possible(profile: CellProfile, identity: Identity, report: SandboxReport) -> bool:
        """Whether a cell of this kind can be prespawned. It cannot if its user namespace depends on its uid, if it has
        a network, or if a mechanism is missing that isolates it from its maker.
        """
        lost = {mechanism.name for mechanism in report.missing}
        return identity.mode != "userns-root" and isinstance(profile.reach, NoNetwork) and not lost & _NEEDED

    def take(self, order: Order, sealed: Sealed) -> bool:
        """Make it the cell of this order. Returns False, and does nothing, if it does not fit."""
        if not self._fits(order, sealed):
            return False
        told, given = self._message(order, sealed)
        if len(told) > _MAX_BYTES or len(given) > _MAX_FDS:
            return False
        try:
            socket.send_fds(self._channel, [told], given)
        except OSError:
            return False  # it died, or the socket buffer is too small: another process carries out the order
        self._close()
        return True

    def _message(self, order: Order, sealed: Sealed) -> tuple[bytes, list[int]]:
        """The message for an order, and its descriptors."""
        streams = [(fd, os.get_inheritable(fd)) for fd in (0, 1, 2, *order.keep_fds)]
        become = Become(
            identity=order.identity.to_wire(),
            cgroups=[*order.cgroups],
            limited=[*order.limited],
            processes=order.processes,
            keep_fds=[*order.keep_fds],
            parent_pid=order.parent_pid,
            landlock_abi=order.landlock_abi,
            filter=order.filter,
            unbound=order.unbound,
            streams=streams,
            owners=[*order.id_maps],
        )
        return pack(become), [*(fd for fd, _ in streams), sealed.fd, *order.id_maps.values()]

    def _order_of(self, become: Become, sealed: int, id_maps: dict[tuple[int, int], int]) -> Order:
        """In the prespawned process: the order, from the message and from its own values. Raises SandboxError if a
        system path was replaced since the maker looked."""
        order = Order(
            base=self._base,
            profile=self._like,
            identity=Identity.from_wire(become.identity),
            report=self._report,
            view=View((), (), ""),
            id_maps=id_maps,
            cgroups=tuple(become.cgroups),
            limited=frozenset(become.limited),
            processes=become.processes,
            keep_fds=tuple(become.keep_fds),
            parent_pid=become.parent_pid,
            landlock_abi=become.landlock_abi,
            filter=become.filter,
            unbound=become.unbound,
        ).completed(sealed)
        if not fits(order.view, View(self._base.binds, self._base.links, "")):
            raise SandboxError(
                "A system path was replaced while the cell was made", step="read the order", cure="Try again."
            )
        return order

    def end(self) -> None:
        """Kill and reap it."""
        self._close()
        terminate(self.child)

    def _close(self) -> None:
        self._channel.close()
        os.close(self.mounts)

    def _fits(self, order: Order, sealed: Sealed) -> bool:
        return (
            sealed.fits_prespawned
            and self._found.holds()
            and replace(order.base, binds=self._base.binds, links=self._base.links) == self._base
            and order.report == self._report
            and max(order.keep_fds, default=0) < LOWEST_OWN
            and not self._mounts_have_changed()
        )

    def _mounts_have_changed(self) -> bool:
        poll = select.poll()
        poll.register(self.mounts, select.POLLPRI)
        self._stale = self._stale or bool(poll.poll(0))  # the kernel reports it once
        return self._stale


def mounted_ahead(planned: View) -> View:
    """The part of a view of system paths that a prespawned cell mounts: no bind that is mapped to one cell's uid, and
    nothing below the scratch. The rest comes with the order."""
    binds = tuple(bind for bind in planned.binds if bind.owner is None and not is_below(bind.path, ("/tmp",)))
    links = tuple(link for link in planned.links if not is_below(link[0], ("/tmp",)))
    return View(binds, links, "")


def fits(whole: View, ahead: View) -> bool:
    """Whether a cell with the view `ahead` can get the whole view."""
    return set(ahead.links) <= set(whole.links) and view.rest(whole, ahead.binds) is not None


def _received(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Wait for an order. Returns the bytes of the message and its descriptors."""
    with channel:
        told, received, _flags = receive_fds(channel, _MAX_BYTES, _MAX_FDS)
    if not told:
        os._exit(0)  # the maker has closed the socket
    return told, [raised(fd) for fd in received]


def _placed(streams: Sequence[tuple[int, bool]], received: Sequence[int]) -> Sequence[int]:
    """Give the first of these descriptors their numbers. Returns the others."""
    for (target, inheritable), fd in zip(streams, received, strict=False):
        os.dup2(fd, target, inheritable)
        os.close(fd)
    return received[len(streams) :]
