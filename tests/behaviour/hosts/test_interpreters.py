"""Places of the interpreter, its packages and the tools, for root and for an ordinary user."""

import os
import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import toolcell
import toolcell_sandbox
import toolcell_tools
from toolcell_sandbox.profile import is_below

from .conftest import HERE, USER, assert_works, command_on, told

ROOT = os.geteuid() == 0


def environment(at: Path, *, copies: bool = False) -> Path:
    """The interpreter of a virtual environment that finds our packages and their dependencies by a path file."""
    venv.create(at, symlinks=not copies)
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    ours = [str(Path(str(each.__file__)).parent.parent) for each in (toolcell, toolcell_sandbox, toolcell_tools)]
    (site,) = at.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text("\n".join(dict.fromkeys(packages + ours)) + "\n")
    return at / "bin" / "python"


def by_links(at: Path) -> Path:
    return environment(at / "venv")


def by_copies(at: Path) -> Path:
    return environment(at / "venv", copies=True)


def named_oddly(at: Path) -> Path:
    return environment(at / "mein ünïcødé venv")


def behind_more_links(at: Path) -> Path:
    """The interpreter is a link to a link to a link."""
    python = environment(at / "venv")
    (at / "second").symlink_to(python.resolve())
    (at / "first").symlink_to("second")
    python.unlink()
    python.symlink_to(at / "first")
    return python


def by_pyenv(at: Path) -> Path:
    """The layout of pyenv: a shim runs the interpreter of a version, whose directory is a link here."""
    versions, shims = at / "versions", at / "shims"
    versions.mkdir()
    shims.mkdir()
    (versions / "current").symlink_to(sys.base_prefix)
    python = environment(at / "venv")
    executable = versions / "current" / "bin" / Path(os.path.realpath(sys.executable)).name
    python.unlink()
    python.symlink_to(executable)
    settings = at / "venv" / "pyvenv.cfg"
    kept = [line for line in settings.read_text().splitlines() if not line.startswith("home")]
    settings.write_text("\n".join([*kept, f"home = {executable.parent}"]))
    shim = shims / "python"
    shim.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    shim.chmod(0o755)
    return shim


def in_a_closed_home(at: Path) -> Path:
    """A home that no other user can enter. A copied interpreter is inside it."""
    home = at / "home"
    home.mkdir(mode=0o700)
    return environment(home / "venv", copies=True)


def in_the_workspace(at: Path) -> Path:
    """The layout of most projects. The interpreter is not among the writable paths."""
    return environment(at / "workspace" / ".venv")


def with_linked_packages(at: Path) -> Path:
    """The layout of uv with UV_LINK_MODE=symlink: each installed file is a link into a cache."""
    python = environment(at / "venv")
    (site,) = (at / "venv").glob("lib/python*/site-packages")
    cache = at / "cache" / "archive-v0" / "abc"
    for package in (toolcell, toolcell_sandbox, toolcell_tools):
        shutil.copytree(Path(str(package.__file__)).parent, cache / package.__name__)
    (cache / "toolcell-0.1.dist-info").mkdir()
    (cache / "toolcell-0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toolcell\nVersion: 0.1\n")
    shutil.copytree(cache, site, copy_function=_link, dirs_exist_ok=True)
    others = [path for path in (site / "ours.pth").read_text().splitlines() if path.endswith("-packages")]
    (site / "ours.pth").write_text("\n".join(others) + "\n")
    return python


def _link(source: str, target: str) -> None:
    os.symlink(source, target)


PLACES: list[Callable[[Path], Path]] = [
    by_links,
    by_copies,
    named_oddly,
    behind_more_links,
    by_pyenv,
    in_a_closed_home,
    in_the_workspace,
    with_linked_packages,
]


FOR_ROOT = [by_links, by_pyenv, in_a_closed_home]
"""An ordinary user reaches a place with more difficulty than root, so these are enough."""


@pytest.mark.parametrize(
    ("place", "user"),
    [
        *(pytest.param(place, "user", id=f"{place.__name__}-user") for place in PLACES),
        *(pytest.param(place, "root", id=f"{place.__name__}-root", marks=pytest.mark.root) for place in FOR_ROOT),
    ],
)
def test_the_interpreter_may_lie_there(place: Callable[[Path], Path], user: str, open_directory: Path) -> None:
    base = open_directory / f"{place.__name__}-{user}"
    base.mkdir()
    python = place(base)
    (base / "workspace").mkdir(exist_ok=True)
    if ROOT and user == "user":
        for directory, names, files in os.walk(base):
            for name in (".", *names, *files):
                os.chown(os.path.join(directory, name), USER, USER, follow_symlinks=False)
    command = [str(python), str(HERE / "embed.py"), "interpreter", str(base / "workspace")]
    found = told(command_on("", command, user=user == "user"))
    assert_works(found)
    assert found["python"]["stdout"] == found["prefix"], found["python"]
    assert is_below(found["prefix"], [str(base)])


EVERYWHERE = {
    "in_a_directory": "IN_A_DIRECTORY",
    "in_a_namespace_package": "NAMESPACE.INNER.BELOW",
    "in_a_zip": "ZIPPED",
    "in_an_editable_install": "EDITABLE",
    "in_a_path_file": "PTH_EDITABLE",
    "without_a_file": "NOTEBOOK",
    "without_a_name": "BUILTINS",
    "in_main": "__MAIN__",
}
"""Each tool of modules.py, and what it answers."""


def test_tools_may_come_from_everywhere(tmp_path: Path) -> None:
    assert told([sys.executable, "-I", str(HERE / "modules.py"), str(tmp_path)]) == EVERYWHERE


def test_tools_of_a_module_that_is_run_work(tmp_path: Path) -> None:
    assert told([sys.executable, "-m", "modules", str(tmp_path)], cwd=HERE) == EVERYWHERE


def test_tools_of_a_program_on_standard_input_work(tmp_path: Path) -> None:
    with (HERE / "modules.py").open() as program:
        assert told([sys.executable, "-", str(tmp_path)], stdin=program) == EVERYWHERE


def test_a_path_of_packages_that_only_this_process_has_is_not_bound(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    code = "from toolcell.sessions.grants import code_roots; import json; print(json.dumps(code_roots()))"
    found = told([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(packages)})
    assert str(packages) not in found


def test_an_interpreter_that_is_gone_is_named(tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    program = f"""
import json, shutil, sys, anyio
from toolcell import SandboxUnavailableError, Supervisor
shutil.rmtree({str(tmp_path / "venv" / "bin")!r})
async def main():
    async with Supervisor():
        return ""
try:
    print(json.dumps(anyio.run(main)))
except SandboxUnavailableError as error:
    print(json.dumps(error.cure))
"""
    assert "sys.executable must be this Python" in str(told([str(python), "-c", program]))
