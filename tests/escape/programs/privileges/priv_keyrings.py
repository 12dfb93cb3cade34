"""Read the session's keyring, which belongs to no namespace.

Source: V07; moby #10939
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(
        keyctl=asked("keyctl", 0, -3, 0),
        describe=asked("keyctl", 6, -4, None, 0),
        add=asked("add_key", "user", "x", b"x", 1, -3),
        request=asked("request_key", "user", "x", None, 0),
    )
