"""An extension type (42, two bytes), for an unpickler that is not there.

Source: X18
"""

import struct
import time

import msgpack
from tests.escape.kit import Ends, Scene, call_number, send

EXPECT = Ends("protocol_violation", "undecodable")


def attack(scene: Scene) -> object:
    body = b"\x93\x10" + msgpack.packb(call_number()) + b"\x81\xa6output" + b"\xd5\x2a\x80\x04"
    send(struct.pack(">I", len(body)) + body)
    time.sleep(1000)
    return "sent"
