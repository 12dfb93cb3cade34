"""A map with a great many integer keys on the wire.

Source: R21; CVE-2026-114613
"""

import struct
import time

import msgpack
from tests.escape.kit import Ends, Scene, call_number, send

EXPECT = Ends("protocol_violation", "key")


def attack(scene: Scene) -> object:
    body = b"\x94\x10" + msgpack.packb(call_number()) + msgpack.packb(dict.fromkeys(range(10000)))
    send(struct.pack(">I", len(body)) + body)
    time.sleep(1000)
    return "sent"
