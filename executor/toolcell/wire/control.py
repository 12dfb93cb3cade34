"""The messages on the control socket for each call, encoded by hand (`toolcell.fast.frames`) or by the general code."""

from toolcell.fast import frames as fast
from toolcell.fast.switches import is_on

from .frames import FrameDecoder, WireLimits, encode
from .messages import Exited, Ready, Recycle, from_fields, to_fields

_LIMITS = WireLimits()


def _recycle(process: int, account: bool) -> bytes:
    return b"".join(encode(to_fields(Recycle(process, account)), _LIMITS))


def _ready(process: int, waiting: bool) -> bytes:
    return b"".join(encode(to_fields(Ready(process, waiting)), _LIMITS))


def _exited(process: int, code: int, cpu_s: float, max_rss_bytes: int) -> bytes:
    return b"".join(encode(to_fields(Exited(process, code, cpu_s, max_rss_bytes)), _LIMITS))


def _recycled(frames: bytes) -> list[tuple[int, bool]]:
    read = [from_fields(frame) for frame in FrameDecoder(_LIMITS).feed(frames) if isinstance(frame, list)]
    return [(one[0], one[1]) for one in read if isinstance(one, Recycle)]


_by_hand = is_on("hand_packed")
recycle = fast.recycle if _by_hand else _recycle
"""Make the frame of a `Recycle`, which ends the call of a process or asks for the next process."""
ready = fast.ready if _by_hand else _ready
"""Make the frame of a `Ready`."""
exited = fast.exited if _by_hand else _exited
"""Make the frame of an `Exited`."""
recycled = fast.recycled if _by_hand else _recycled
"""Read frames of `Recycle`."""
