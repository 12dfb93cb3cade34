"""Running the command line as a user does: the console script's function, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import programs
from tests.ordinary import AS_USER, USER

import toolcell
import toolcell_sandbox
import toolcell_tools
from toolcell_sandbox.profile import python_paths

ALLOWED = tuple(os.environ.get("TOOLCELL_TEST_ALLOW_MISSING", "").replace(",", " ").split())
"""The mechanisms that may be missing on the machine of this test run."""

Run = Callable[..., subprocess.CompletedProcess[str]]


def as_user() -> list[str]:
    """The words before a command that root runs as an ordinary user, with all that it needs within reach."""
    packages = [str(Path(str(package.__file__)).parent) for package in (toolcell, toolcell_sandbox, toolcell_tools)]
    return [sys.executable, "-I", str(AS_USER), str(USER), *python_paths(), *packages, "--"]


@pytest.fixture(params=["ourselves", "ordinary user"] if os.geteuid() == 0 else ["ourselves"])
def anyone(request: pytest.FixtureRequest) -> list[str]:
    """The words before a command: as whoever runs the tests, and for root as an ordinary user too."""
    return as_user() if request.param == "ordinary user" else []


@pytest.fixture
def cli(warm: None) -> Run:
    """`cli("doctor", "--json", before=…)`: run the command and return how it ended."""

    def run(*arguments: str, before: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [*(before or []), sys.executable, "-I", "-m", "toolcell.cli", *arguments]
        return programs.run(command, timeout=300)

    return run


@pytest.fixture(scope="module")
def once(warm: None) -> Run:
    """As `cli`, for a command that several tests of a module look at: it runs once."""
    runs: dict[tuple[str, ...], subprocess.CompletedProcess[str]] = {}

    def run(*arguments: str, before: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        command = (*(before or []), sys.executable, "-I", "-m", "toolcell.cli", *arguments)
        if command not in runs:
            runs[command] = programs.run(command, timeout=300)
        return runs[command]

    return run


@pytest.fixture
def allowed() -> list[str]:
    """The demo's options for a machine that lacks what `TOOLCELL_TEST_ALLOW_MISSING` names."""
    return [word for name in ALLOWED for word in ("--allow-missing", name)]
