"""`tests/modules.py` runs and reports all tests of all modules."""

import re
import subprocess
import sys
from pathlib import Path

from .pages import ROOT

PLUGINS = ["--disable-plugin-autoload", "-pxdist.plugin", "-ppytest_timeout", "-ptests.modules", "-pno:cacheprovider"]
MODULES = {
    "test_first": """
import pytest

@pytest.fixture(scope="module")
def whole():
    yield
    raise ValueError("after the last test of this module")

@pytest.mark.parametrize("number", range(3))
def test_of(number, whole): assert number != 1

class TestClass:
    def test_method(self, whole): pass
""",
    "test_not_there": "import nothing_like_this",
    "test_without_tests": "",
    "test_last": "def test_it(): pass",
}


def test_each_test_is_reported_once_and_a_module_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-n1", "--dist=loadfile", "-rA"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)) == [
        ("ERROR", "test_first.py::TestClass::test_method"),
        ("ERROR", "test_not_there.py"),
        ("FAILED", "test_first.py::test_of[1]"),
        ("PASSED", "test_first.py::TestClass::test_method"),
        ("PASSED", "test_first.py::test_of[0]"),
        ("PASSED", "test_first.py::test_of[2]"),
        ("PASSED", "test_last.py::test_it"),
    ]
