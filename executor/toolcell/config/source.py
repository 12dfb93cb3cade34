"""One place that settings come from: a TOML file, or the arguments of `load_config`; and where in it a key stands."""

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolcell.errors import ConfigError, ConfigProblem

Key = tuple[str | int, ...]
"""The way to a value: table names, the key, and the index in a list."""

NAME = "toolcell.toml"
MAX_BYTES = 64 * 1024  # a page of settings has 2 KiB; a project's file is not ours
_MAX_LINES_OF_A_VALUE = 1000


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """`trusted` is False for a project's file: it came with the repository, and may only narrow."""

    name: str
    table: Mapping[str, object]
    folder: str
    trusted: bool = True
    text: str = field(default="", repr=False)

    def problem(self, key: Key, message: str) -> ConfigProblem:
        """What is wrong at this key, with the line if it can be found."""
        return ConfigProblem(self.name, line_of(self.text, key), shown(key), message)

    def path(self, text: str) -> str:
        """A path of these settings, absolute: `~` is the home, the rest is relative to where the settings stand.

        An untrusted one without symbolic links: a repository may have a link to anything.
        """
        path = os.path.normpath(os.path.join(self.folder, os.path.expanduser(text)))
        return path if self.trusted else os.path.realpath(path)


def user_file() -> Path:
    """Where the user's own settings are; XDG Base Directory Specification 0.8, which ignores a relative path."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    folder = home if os.path.isabs(home) else os.path.expanduser("~/.config")
    return Path(folder, "toolcell", NAME)


def read(path: Path, *, trusted: bool = True) -> ConfigSource:
    """Read a file; ConfigError when it is not a small regular file with TOML in it."""
    name = str(path)
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a fifo or a device would be read forever
                raise _wrong(name, "is not a file. Name a TOML file.")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _wrong(name, f"cannot be read: {error.strerror}. Mend the path or its permissions.") from None
    if len(data) > MAX_BYTES:
        raise _wrong(name, f"is larger than {MAX_BYTES} bytes. Shorten it.")
    try:
        text = data.decode()
        table = tomllib.loads(text)
    except RecursionError:
        raise _wrong(name, "is nested too deeply. Flatten it.") from None
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError, which says the line
        raise _wrong(name, f"is not TOML: {error}") from None
    return ConfigSource(name, table, os.path.dirname(os.path.abspath(path)), trusted, text)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _wrong(name: str, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(name, None, "", message)])


def shown(key: Key) -> str:
    """A key as people write it: `profiles.main.readable[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).removeprefix(".")


def line_of(text: str, key: Key) -> int | None:
    """The line where a key of this TOML text is set, from 1; None if it cannot be told.

    tomllib keeps no positions, so it is asked: the first beginning of the text that has the key ends with it.
    """
    names = [part for part in key if isinstance(part, str)]
    lines = text.split("\n")
    for start in _lines_with(names[-1], lines) if names else ():
        for end in range(start + 1, min(len(lines), start + _MAX_LINES_OF_A_VALUE) + 1):
            try:
                table = tomllib.loads("\n".join(lines[:end]))
            except ValueError:
                continue  # within a value of several lines
            if _has(table, names):
                return start + 1
            break
    return None


def _lines_with(name: str, lines: list[str]) -> Iterator[int]:
    return (number for number, line in enumerate(lines) if name in line)


def _has(table: object, names: list[str]) -> bool:
    for name in names:
        if not isinstance(table, dict) or name not in table:
            return False
        table = table[name]  # pyright: ignore[reportUnknownVariableType]
    return True
