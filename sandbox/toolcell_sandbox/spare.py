"""A cell that is begun before anybody needs it.

Most of what making a cell takes is the same for all: the fork, the namespaces, the mounts of the system's paths. A
spare has that behind it and waits. It holds no more than any cell that has come as far: it knows no session and no
workspace, and nobody's code has run in it. An order, with the descriptors that belong to it, makes it a cell.

A fork shares all pages until one side writes to them, and Python writes wherever it counts a reference. So both sides
go through the motions of an order after the fork, and need no new pages when one comes.
"""

import copyreg
import os
import pickle
import select
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType

from . import view
from .enter import Order
from .identity import Identity
from .mechanisms.fds import LOWEST_OWN, raised
from .network import NoNetwork
from .profile import Profile, is_below
from .report import SandboxReport
from .spawn import Failed, Main, begin, prepare, terminate
from .view import Bind, View

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from .errors import SandboxError

    _Message = tuple[Order, list[tuple[int, bool]], list[tuple[int, int]]]

_NEEDED = frozenset({"mount_namespace", "pid_namespace", "net_namespace", "mount_setattr", "pivot_root", "pidfd"})
_NO_REPORT = SandboxReport((), "root")
_MAX_FDS = 128  # of one message, of which the kernel takes 253 (SCM_MAX_FD, unix(7))
_MAX_BYTES = 128 * 1024  # below what a socket takes at once (net.core.wmem_default)


class Spare:
    """One such process: a child of the caller, which reaps it. `take` makes it a cell, `end` ends it.

    It dies with its maker, and ends when this object is gone. While it waits it holds a copy of all that is mounted
    here. `mounts` is a descriptor that has POLLPRI once that has changed (proc_pid_mounts(5)): then it fits no order
    any more, and holds what may have been unmounted, so it is to be ended.
    """

    def __init__(
        self,
        main: Main,
        failed: Failed,
        *,
        identity: Identity,
        system: Sequence[str],
        proc: bool,
        report: SandboxReport,
        allow_missing: frozenset[str] = frozenset(),
        rehearse: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin a cell for a profile with these `system` paths and `proc`, and an identity like this one, for which
        `is_possible` has said yes. What else a profile says is not to be in the memory of another session's cell.

        `main` and `failed` are as in `spawn`. `rehearse` is run inside before it waits: what `main` is going to do, as
        far as it can be done without consequences. Raises SandboxError where it cannot be begun.
        """
        like = Profile(system=tuple(system), proc=proc)

        def rehearsed() -> Order:
            return prepare(like, identity=identity, report=report, allow_missing=allow_missing)

        common = rehearsed()
        # Not those that are mapped for one cell's uid, nor what lies below the scratch, which an order comes with.
        binds = tuple(bind for bind in common.view.binds if bind.owner is None and not is_below(bind.path, ("/tmp",)))
        links = tuple(link for link in common.view.links if not is_below(link[0], ("/tmp",)))
        self._base = replace(common.base, binds=binds, links=links)
        self._report = report
        sample, _given = self._message(common)
        self.mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stale = False
        ordered = False

        def receive() -> Order:
            nonlocal ordered
            _opened(sample)
            rehearse()
            order = replace(_receive(theirs), report=report)
            ordered = True
            return order

        def tell(error: "SandboxError") -> None:
            if ordered:  # before, nobody waits for this cell
                failed(error)

        try:
            self.child = begin(self._base, receive, main, tell, (theirs.fileno(),))
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
        self._message(rehearsed())

    def __repr__(self) -> str:
        return f"<Spare with {len(self._base.binds)} paths in place>"

    @staticmethod
    def is_possible(profile: Profile, identity: Identity, report: SandboxReport) -> bool:
        """Whether a cell of this kind can be begun ahead: not where its uid is a part of its user namespace, where its
        network is not an empty one, or where a mechanism is missing that sets it apart from its maker.
        """
        lost = {mechanism.name for mechanism in report.missing}
        return identity.mode != "userns-root" and isinstance(profile.reach, NoNetwork) and not lost & _NEEDED

    def take(self, order: Order) -> bool:
        """Make it the cell of this order. False, and nothing has happened, where it does not fit."""
        if not self._fits(order):
            return False
        told, given = self._message(order)
        if len(told) > _MAX_BYTES or len(given) > _MAX_FDS:
            return False
        try:
            socket.send_fds(self._channel, [told], given)
        except OSError:
            return False  # it has died, or what sockets take here is less: another process carries the order out
        self._close()
        return True

    def _message(self, order: Order) -> tuple[bytes, list[int]]:
        """What a spare is told of an order, and the descriptors to be sent with it."""
        streams = [(fd, os.get_inheritable(fd)) for fd in (0, 1, 2, *order.keep_fds)]
        short = replace(order, base=self._base, report=_NO_REPORT, id_maps={})  # the spare has the report
        told = pickle.dumps((short, streams, list(order.id_maps)))
        return told, [*(fd for fd, _ in streams), *order.id_maps.values()]

    def end(self) -> None:
        """Kill and reap it."""
        self._close()
        terminate(self.child)

    def _close(self) -> None:
        self._channel.close()
        os.close(self.mounts)

    def _fits(self, order: Order) -> bool:
        return (
            replace(order.base, binds=self._base.binds, links=self._base.links) == self._base
            and order.report == self._report
            and set(self._base.links) <= set(order.view.links)
            and _can_come_first(self._base.binds, order.view)
            and max(order.keep_fds, default=0) < LOWEST_OWN
            and not self._mounts_have_changed()
        )

    def _mounts_have_changed(self) -> bool:
        poll = select.poll()
        poll.register(self.mounts, select.POLLPRI)
        self._stale = self._stale or bool(poll.poll(0))  # the kernel says it once
        return self._stale


def _can_come_first(binds: Iterable[Bind], planned: View) -> bool:
    """Whether the view has all of these, and none of the others lies above one of them and would hide it."""
    rest = {bind.path: bind for bind in planned.binds}
    if any(rest.pop(bind.path, None) != bind for bind in binds):
        return False
    return not any(above in rest for bind in binds for above in view.parents(bind.path))


def _receive(channel: socket.socket) -> Order:
    """Wait for the order, and put its descriptors in their places."""
    with channel:
        told, received, _flags, _address = socket.recv_fds(channel, _MAX_BYTES, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
    if not told:
        os._exit(0)  # nobody needs it any more
    order, streams, owners = _opened(told)
    own = [raised(fd) for fd in received]
    for (target, inheritable), fd in zip(streams, own, strict=False):
        os.dup2(fd, target, inheritable)
        os.close(fd)
    id_maps = dict(zip(owners, own[len(streams) :], strict=True))
    return replace(order, id_maps=id_maps)


def _opened(told: bytes) -> "_Message":
    message: _Message = pickle.loads(told)  # of the process that this one is a fork of
    return message


def _read_only(mapping: dict[str, str]) -> "MappingProxyType[str, str]":
    return MappingProxyType(mapping)


copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))  # as `Profile.env` is
