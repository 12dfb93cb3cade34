"""The cell's own passwd(5) and group(5), so that programs find their user. They have no account of the host."""

import os
from collections.abc import Container

from toolcell_sandbox.identity import Identity

FILES = ("/etc/passwd", "/etc/group")
NAME = "toolcell"
_NOBODY = 65534


def make(identity: Identity, home: str, bound: Container[str]) -> None:
    """Write both files into the new root, unless the profile binds the host's."""
    for path, text in zip(FILES, (_passwd(identity, home), _group(identity)), strict=True):
        if "/etc" in bound or path in bound:
            continue
        os.makedirs("/etc", 0o755, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o444)  # whatever the umask is
            file.write(text.encode())


def _passwd(identity: Identity, home: str) -> str:
    accounts = {0: "root:x:0:0::/root:/bin/sh", _NOBODY: f"nobody:x:{_NOBODY}:{_NOBODY}::/:/bin/sh"}
    home = home if home.isprintable() and ":" not in home else "/tmp"
    accounts[identity.uid] = f"{NAME}:x:{identity.uid}:{identity.gid}::{home}:/bin/sh"
    return "".join(f"{line}\n" for line in accounts.values())


def _group(identity: Identity) -> str:
    groups = {0: "root:x:0:", _NOBODY: f"nogroup:x:{_NOBODY}:"}
    groups.setdefault(identity.gid, f"{NAME}:x:{identity.gid}:")
    return "".join(f"{line}\n" for line in groups.values())
