"""After a fork, the zygote goes through a request while nobody waits for it.

A fork leaves all pages shared, and each page is copied at the first write to it. Nearly every step of Python writes to
reference counts. So the next request would wait for the copies of all the pages that it needs.
"""

import os
import socket
from contextlib import suppress

from toolcell.wire.frames import HEADER
from toolcell.wire.messages import BindPaths, PathsBound, Prepare, Started
from toolcell.wire.protocol import ZYGOTE_LIMITS, ZygoteLink
from toolcell_sandbox.kernel.descriptors import receive_fds
from toolcell_sandbox.profile import CellProfile


def rehearse(profile: CellProfile) -> None:
    """Read and answer a request as the zygote does, and read a profile."""
    asking, answering = ZygoteLink.of_supervisor(), ZygoteLink.of_zygote()
    answering.receive(asking.send(Prepare(None, [], [], [])))
    asking.receive(answering.send(Started({}, {})))
    with suppress(OSError):  # no descriptor is left: the next request says so
        _exchange(asking, answering)
    CellProfile.from_wire(profile.to_wire(short=True))


def _exchange(asking: ZygoteLink, answering: ZygoteLink) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(theirs, [asking.send(BindPaths(0, []))], [])
        data, received, _flags = receive_fds(ours, HEADER.size + ZYGOTE_LIMITS.frame_bytes, 8)
        answering.receive(data)
        for fd in received:
            os.close(fd)
        socket.send_fds(ours, [answering.send(PathsBound(0))], [])
