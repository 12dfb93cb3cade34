"""`tests/modules.py` runs and reports all tests of all modules."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.helpers import PATIENCE_S

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
    done = run(tmp_path, MODULES)
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


OF_A_PACKAGE = """
import pytest

@pytest.fixture(scope="package")
def package(): yield

def test_it(package): pass
"""


@pytest.mark.parametrize(
    ("text", "reports"),
    [("", []), ("import pytest\npytest.skip('a reason', allow_module_level=True)", []),
     ("import nothing_like_this", [("ERROR", "one/test_b.py")])],
    ids=["empty", "skipped", "broken"],
)  # fmt: skip
def test_a_module_without_tests_leaves_nothing_of_its_package_to_the_next_one(
    tmp_path: Path, text: str, reports: list[tuple[str, str]]
) -> None:
    done = run(tmp_path, {"one/test_a": OF_A_PACKAGE, "one/test_b": text, "two/test_c": "def test_it(): pass"})
    assert sorted(re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)) == [
        *reports,
        ("PASSED", "one/test_a.py::test_it"),
        ("PASSED", "two/test_c.py::test_it"),
    ]


def run(directory: Path, modules: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\n")
    for name, text in modules.items():
        path = directory / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        if path.parent != directory:
            (path.parent / "__init__.py").touch()
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-n1", "--dist=loadfile", "-rA"]
    return subprocess.run(
        command,
        cwd=directory,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
