"""Sockets of families with a history of holes.

Source: N11; CVE-2026-31431
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    families = {
        "alg": 38,
        "packet": 17,
        "bluetooth": 31,
        "xdp": 44,
        "tipc": 30,
        "vsock": 40,
        "can": 29,
        "rds": 21,
        "key": 15,
        "qipcrtr": 42,
        "smc": 43,
        "kcm": 41,
        "x25": 9,
        "rxrpc": 33,
        "nfc": 39,
    }
    return each(lambda name: each(lambda kind: asked("socket", families[name], kind, 0), [1, 2, 3, 5]), families)
