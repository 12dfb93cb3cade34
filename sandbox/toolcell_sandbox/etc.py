"""/etc in a cell: what every cell may read of the host's (public data of the C library, and settings of installed
programs), and its own accounts.

A distribution keeps the settings of a program in /etc and links to them from the program's own directory below /usr:
without the target of /usr/lib/jvm/*/conf/net.properties, Java does not start. So a directory of /etc is readable in
cells if such a link leads into it and everyone may read all that is in it. A link alone opens nothing else: no file
that lies directly in /etc (environment, npmrc), and no directory with a part that only some may read (ssl/private).
"""

import os
import stat
from collections.abc import Container, Iterator
from functools import lru_cache

TYPE_CHECKING = False  # checkers know this name
if TYPE_CHECKING:
    from .identity import Identity

_PUBLIC = (
    "ld.so.cache", "alternatives", "localtime", "fonts", "services", "protocols",
    "ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "pki/tls/certs", "pki/ca-trust/extracted",
)  # fmt: skip
_PROGRAMS = ("/usr/lib", "/usr/lib64", "/usr/share")
_WITHOUT_PROGRAMS = frozenset({"doc", "icons", "info", "locale", "man", "zoneinfo"})  # two thirds of /usr/share
_DEPTH = 2  # of the links: maven/conf. A walk to 3 takes 25 ms of the start of each supervisor, to 4 it takes 50
_DEEPER = {"jvm": 4, "texlive": 4, "R": 3}  # jvm/java-17-openjdk-amd64/conf/net.properties, texlive/texmf-dist/web2c/…
_SETTINGS = frozenset({"conf", "config", "etc"})  # are searched too where a program's directory is
_ENTRIES = 2_000  # of a directory of settings; those of Java are 20
ACCOUNTS = ("/etc/passwd", "/etc/group")
USER_NAME = "toolcell"
_NOBODY = 65534


@lru_cache(maxsize=1)
def etc_paths() -> tuple[str, ...]:
    """The paths below /etc, as they are when this process first asks. Some may be missing."""
    return (*(f"/etc/{name}" for name in _PUBLIC), *linked_settings(_PROGRAMS, "/etc"))


def linked_settings(programs: tuple[str, ...], etc: str) -> tuple[str, ...]:
    """The directories of `etc` into which a link below `programs` leads, and in which everyone may read everything."""
    named = {name.split("/")[0] for name in _PUBLIC}
    found = {target[len(etc) + 1 :].split("/")[0] for target in _targets(programs, f"{etc}/")}
    return tuple(f"{etc}/{name}" for name in sorted(found - named) if _is_public(f"{etc}/{name}"))


def _targets(programs: tuple[str, ...], below: str) -> Iterator[str]:
    """The targets of links in `programs` that are below the directory `below`. Links are sought `_DEPTH` names deep, or
    `_DEEPER`."""
    left = [(place, _DEPTH) for place in programs if not os.path.islink(place)]
    while left:
        place, depth = left.pop()
        deeper = _DEEPER if place in programs else {}
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        target = os.path.normpath(os.path.join(place, os.readlink(entry.path)))
                        if target.startswith(below):
                            yield target
                    elif _is_searched(entry.name, depth) and entry.is_dir():
                        left.append((entry.path, deeper.get(entry.name, depth) - 1))
        except OSError:  # it is gone, or only some may read it
            continue


def _is_searched(name: str, depth: int) -> bool:
    return name in _SETTINGS if depth <= 1 else name not in _WITHOUT_PROGRAMS


def _is_public(directory: str) -> bool:
    """Whether a directory is no link, and everyone may read all that is in it. Targets of links in it do not count: a
    cell sees a target only if that is bound too."""
    left, seen = [directory], 0
    try:
        while left:
            place = left.pop()
            if not _is_open(os.lstat(place), stat.S_IFDIR, 0o005):
                return False
            with os.scandir(place) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif not entry.is_symlink() and not _is_open(os.lstat(entry.path), stat.S_IFREG, 0o004):
                        return False
                    if seen > _ENTRIES:
                        return False
    except OSError:
        return False
    return True


def _is_open(status: os.stat_result, kind: int, bits: int) -> bool:
    return stat.S_IFMT(status.st_mode) == kind and status.st_mode & bits == bits


def make_accounts(identity: "Identity", home: str, bound: Container[str]) -> None:
    """Write the cell's own passwd(5) and group(5) into the new root, so that programs find their user, unless the
    profile binds the host's. They have no account of the host."""
    for path, text in zip(ACCOUNTS, (_passwd(identity, home), _group(identity)), strict=True):
        if "/etc" in bound or path in bound:
            continue
        os.makedirs("/etc", 0o755, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o444)  # whatever the umask is
            file.write(text.encode())


def _passwd(identity: "Identity", home: str) -> str:
    accounts = {0: "root:x:0:0::/root:/bin/sh", _NOBODY: f"nobody:x:{_NOBODY}:{_NOBODY}::/:/bin/sh"}
    home = home if home.isprintable() and ":" not in home else "/tmp"
    accounts[identity.uid] = f"{USER_NAME}:x:{identity.uid}:{identity.gid}::{home}:/bin/sh"
    return "".join(f"{line}\n" for line in accounts.values())


def _group(identity: "Identity") -> str:
    groups = {0: "root:x:0:", _NOBODY: f"nogroup:x:{_NOBODY}:"}
    groups.setdefault(identity.gid, f"{USER_NAME}:x:{identity.gid}:")
    return "".join(f"{line}\n" for line in groups.values())
