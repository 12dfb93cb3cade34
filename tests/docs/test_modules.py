"""`tests/modules.py` runs and reports all tests of all modules. The lists of modules name what there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.selection import HERE, LONGEST, SMOKE

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


USES_PACKAGE = """
import pytest

@pytest.fixture(scope="package")
def package():
    yield
    print("the package's fixture has ended")

def test_a(package): pass
"""
WITHOUT_TESTS = {
    "empty": ("", "2 passed"),
    "skipped": ("import pytest\npytest.skip('for a reason', allow_module_level=True)\n", "2 passed, 1 skipped"),
    "broken": ("import there_is_no_such_module\n", "2 passed, 1 error"),
}


@pytest.mark.parametrize(("text", "summary"), WITHOUT_TESTS.values(), ids=WITHOUT_TESTS)
def test_a_module_without_tests_is_reported_and_disturbs_no_later_one(tmp_path: Path, text: str, summary: str) -> None:
    for name, content in {
        "one/test_a.py": USES_PACKAGE,
        "one/test_b.py": text,
        "two/test_c.py": "def test_c(): pass",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
        (tmp_path / name).with_name("__init__.py").touch()
    line = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "xdist.plugin"]
    line += ["-p", "tests.modules", "-W", "ignore", "-n", "1", str(tmp_path / "one"), str(tmp_path / "two")]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(line, timeout=60, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert f" {summary} in " in f" {done.stdout.splitlines()[-1].strip('= ')}", done.stdout + done.stderr
    assert done.returncode == ("error" in summary)


@pytest.mark.parametrize("name", (*LONGEST, *SMOKE))
def test_a_list_of_modules_names_only_what_there_is(name: str) -> None:
    path, _, test = name.partition("::")
    assert f"def {test}(" in (HERE / path).read_text() or not test
