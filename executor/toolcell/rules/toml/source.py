"""A source of settings: a TOML file, or the arguments of `load_config`. It knows the line of each key."""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import cast

from toolcell.errors import ConfigError, ConfigProblem

Key = tuple[str | int, ...]
"""The path of a value: table names, the key, and the index in a list."""

NAME = "toolcell.toml"
MAX_BYTES = 64 * 1024  # a page of settings has 2 KiB
_DEEPEST_KEY = 8  # no setting is deeper than profiles.main.network.allow
_PART = r"""(?:[\w-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_MANY_PARTS = re.compile(rf"(?<![\w-])(?:{_PART}[ \t]*\.[ \t]*){{64}}")  # tomllib needs the square of their number
_TOKEN = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*|[\[\]{}\n]""", re.DOTALL
)
"""The tokens that decide where a TOML statement ends: strings, comments, brackets and line ends."""


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A source of settings. `trusted` is False for a project's file, which came with the repository and may only
    narrow.
    """

    name: str
    table: Mapping[str, object]
    folder: str
    trusted: bool = True
    text: str = field(default="", repr=False)

    def problem(self, key: Key, message: str) -> ConfigProblem:
        """The problem with this key, with its line if it is known."""
        return ConfigProblem(self.name, line_of(self.text, key), shown(key), message)

    def path(self, text: str) -> str:
        """The absolute path for a path in these settings. `~` is the home. A relative path begins at the settings file.
        For an untrusted source, symbolic links are resolved, because a repository may have links.
        """
        path = os.path.normpath(os.path.join(self.folder, os.path.expanduser(text)))
        return path if self.trusted else os.path.realpath(path)


def user_file() -> Path:
    """The path of the user's settings, by the XDG Base Directory Specification 0.8, which ignores a relative path. For
    a user without a home the path is relative, and is not read.
    """
    home = os.environ.get("XDG_CONFIG_HOME", "")
    folder = home if os.path.isabs(home) else os.path.expanduser("~/.config")
    return Path(folder, "toolcell", NAME)


def read(path: Path, *, trusted: bool = True) -> ConfigSource:
    """Read a file. Raises ConfigError if it is not a small regular file with TOML."""
    name = str(path)
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a read from a FIFO or a device might never end
                raise _wrong(name, "is not a file. Name a TOML file.")
            data = file.read(MAX_BYTES + 1) or b""  # None of one in /proc that has nothing yet
    except OSError as error:
        raise _wrong(name, f"cannot be read: {error.strerror}. Mend the path or its permissions.") from None
    if len(data) > MAX_BYTES:
        raise _wrong(name, f"is larger than {MAX_BYTES} bytes. Shorten it.")
    try:
        text = data.decode()
        if _MANY_PARTS.search(text):
            raise RecursionError
        table = tomllib.loads(text)
    except RecursionError:
        raise _wrong(name, "is nested too deeply. Flatten it.") from None
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError, which says the line
        raise _wrong(name, f"is not TOML: {error}") from None
    return ConfigSource(name, table, os.path.dirname(os.path.abspath(path)), trusted, text)


def is_there(path: Path) -> bool:
    """Whether the path exists, is a broken link, or cannot be accessed. `read` reports the reason."""
    try:
        os.lstat(path)
    except OSError as error:
        return not isinstance(error, (FileNotFoundError, NotADirectoryError))
    return True


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _wrong(name: str, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(name, None, "", message)])


def shown(key: Key) -> str:
    """A key in the usual notation: `profiles.main.readable[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).removeprefix(".")


def line_of(text: str, key: Key) -> int | None:
    """The line, from 1, in which a key of this TOML text is set. None if it is unknown."""
    return _lines(text).get(tuple(part for part in key if isinstance(part, str)))


@lru_cache(maxsize=4)
def _lines(text: str) -> Mapping[Key, int]:
    """The line where each key is first set. tomllib keeps no positions, so each statement is parsed by itself, once: a
    hostile file may have thousands of mistakes.
    """
    found: dict[Key, int] = {}
    table: Key = ()
    for line, statement in _statements(text):
        try:
            keys = list(_keys(tomllib.loads(statement)))
        except (ValueError, RecursionError):
            continue
        is_header = statement.lstrip().startswith("[")
        for key in keys:
            found.setdefault(key if is_header else (*table, *key), line)
        table = keys[-1] if is_header else table
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The statements of a TOML text, each with the line on which it begins."""
    line, start, depth = 1, 0, 0
    for token in _TOKEN.finditer(text := text + "\n"):
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
        if token[0] == "\n" and not depth:
            statement = text[start : token.end()]
            if statement.strip():
                yield line, statement
            line, start = line + statement.count("\n"), token.end()


def _keys(table: object, above: Key = ()) -> Iterator[Key]:
    """Each key of a table and of the tables in it, the outer ones first."""
    tables = cast("list[object]", table) if isinstance(table, list) else [table]
    for inner in tables:
        if isinstance(inner, dict) and len(above) < _DEEPEST_KEY:
            for name, value in cast("dict[str, object]", inner).items():
                key = (*above, name)
                yield key
                yield from _keys(value, key)
