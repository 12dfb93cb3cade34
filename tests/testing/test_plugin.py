"""The pytest plugin: its fixtures, in a project of somebody else's, and what it costs those who do not use them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PLUGIN = "toolcell.testing.plugin"


@pytest.fixture(autouse=True)
def leftovers(supervise: object) -> None:
    """Its name has conftest look for leftovers after each test."""


def pytest_of(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest on this text, with this plugin and no other."""
    (directory / "test_it.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, "-W", "error"],
        cwd=directory,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_example_passes(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, (ROOT / "examples" / "test_tools.py").read_text())
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout


def test_a_test_that_leaves_its_supervisor_open_is_told_how_to_close_it(tmp_path: Path) -> None:
    text = """
import anyio
def test_forgets(toolcell_supervisor):
    anyio.run(toolcell_supervisor().start)
"""
    done = pytest_of(tmp_path, text)
    assert done.returncode == 1 and "Use async with, or await aclose()" in done.stdout, done.stdout


def test_it_is_on_hand_where_toolcell_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"toolcell": PLUGIN}


def test_who_does_not_use_it_loads_nothing_but_itself() -> None:
    code = f"import sys, pytest; before = {{*sys.modules}}; import {PLUGIN};print(*sorted({{*sys.modules}} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["toolcell", "toolcell.testing", PLUGIN]
