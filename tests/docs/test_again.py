"""`.ci/again`, which runs the tests that failed in CI once more."""

import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

PYTEST = """#!{python}
import json, os, sys
if "-n" in sys.argv:
    print("the second output of", sys.argv[-1])
    sys.exit("broken" in sys.argv[-1])
with open(os.environ["TOOLCELL_TEST_FAILURES"], "a") as failures:
    for test in sys.argv[1:]:
        print(json.dumps([test, f"the first output of {{test}}"]), file=failures)
sys.exit({code} or len(sys.argv) > 1)
"""


def again(place: Path, *failing: str, code: int = 0) -> tuple[int, str]:
    """The exit code and the output of CI, after a run of pytest in which these tests have failed."""
    pytest = place / "pytest"
    pytest.write_text(PYTEST.format(python=sys.executable, code=code))
    pytest.chmod(0o755)
    command = [sys.executable, str(ROOT / ".ci" / "again"), str(pytest), *failing]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


def test_tests_that_pass_the_second_time_are_told_as_flaky_with_both_outputs(tmp_path: Path) -> None:
    code, said = again(tmp_path, "test_a", "test_b")
    assert code == 0 and "2 flaky, 0 failed twice: test_a, test_b" in said
    for test in ("test_a", "test_b"):
        assert f"FLAKY: {test}" in said
        assert f"the first output of {test}" in said and f"the second output of {test}" in said


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, said = again(tmp_path, "test_a", "test_broken")
    assert code == 1 and "FLAKY: test_a" in said and "FAILED TWICE: test_broken" in said


@pytest.mark.parametrize("number", [5, 6])
def test_more_than_five_failures_fail_the_run(tmp_path: Path, number: int) -> None:
    code, _said = again(tmp_path, *(f"test_{each}" for each in range(number)))
    assert code == (number > 5)


def test_a_run_that_ends_otherwise_keeps_its_exit_code(tmp_path: Path) -> None:
    assert again(tmp_path)[0] == 0
    assert again(tmp_path, "test_a", code=2)[0] == 2, "an interrupt, for example"
