"""The files of a command that its cell must read: the program, and what it was installed with."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")


def program_of(command: str) -> str:
    """The absolute path of a command, found as a shell finds it; of what it links to, unless it lies in a virtual
    environment, which its path tells. The command itself if there is none."""
    found = shutil.which(command)
    if found is None:
        return command
    here = Path(os.path.abspath(found))
    return str(here) if (here.parent.parent / "pyvenv.cfg").is_file() else os.path.realpath(here)


def code_paths(command: Sequence[str]) -> tuple[str, ...]:
    """The paths that a command names, and those that belong to them: a file, its virtual environment, its
    `node_modules`. Directories that are arguments are data, and are left out."""
    found: dict[str, None] = {}
    for word in command:
        if os.path.isabs(word) and os.path.isfile(word):
            found.update(dict.fromkeys(os.path.realpath(path) for path in _around(Path(word))))
    return tuple(path for path in found if not path.startswith(tuple(f"{each}/" for each in _SYSTEM)))


def _around(file: Path) -> Iterator[Path]:
    """The file, or the environment that it was installed into."""
    modules = [each for each in file.parents if each.name == "node_modules"]
    if modules:
        yield modules[-1]
    elif file.parent.name in ("bin", "sbin") and (config := file.parent.parent / "pyvenv.cfg").is_file():
        yield file.parent.parent
        yield from _bases(config)
    else:
        yield file


def _bases(config: Path) -> Iterator[Path]:
    """The installation on which a virtual environment stands, by its pyvenv.cfg."""
    for line in config.read_text(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home" and os.path.isabs(value.strip()):
            yield Path(value.strip()).parent
