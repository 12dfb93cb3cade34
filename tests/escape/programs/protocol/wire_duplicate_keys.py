"""A map that names one key twice.

Source: X17
"""

import struct
import time

import msgpack
from tests.escape.kit import Ends, Scene, call_number, send

EXPECT = Ends("protocol_violation", "duplicate key")


def attack(scene: Scene) -> object:
    body = b"\x93\x10" + msgpack.packb(call_number()) + b"\x82\xa6output\x01\xa6output\x02"
    send(struct.pack(">I", len(body)) + body)
    time.sleep(1000)
    return "sent"
