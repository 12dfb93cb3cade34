"""A host without free threads, descriptors or space: a call ends with a typed error, and calls work again
afterwards.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.ordinary import AS_USER, USER

import toolcell_sandbox
from toolcell_sandbox.profile import python_paths

HERE = Path(__file__).parent
SOURCES = [str(Path(toolcell_sandbox.__file__).parent.parent.parent), str(HERE)]
PATHS = [("root", "asyncio"), ("user", "trio")] if os.geteuid() == 0 else [("user", "asyncio"), ("user", "trio")]
pytestmark = pytest.mark.usefixtures("warm")
paths = pytest.mark.parametrize(("identity", "loop"), PATHS)
PASSING = {"overloaded", "sandbox_unavailable"}


def run(identity: str, loop: str, what: str, directory: Path) -> Any:
    workspace = Path(tempfile.mkdtemp(prefix="scarce", dir=directory))
    command = [sys.executable, "-I", str(HERE / "scarce.py"), loop, str(workspace), what]
    if identity == "user" and os.geteuid() == 0:
        os.chown(workspace, USER, USER)
        reached = [*python_paths(), *SOURCES]
        command = [sys.executable, "-I", str(AS_USER), str(USER), *reached, "--", *command]
    done = programs.run(command, cwd="/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_all_is_well(found: Any) -> None:
    assert found["raised"] == []
    assert found["fds"] <= 1  # trio and asyncio keep none; an import may keep /dev/urandom open
    wrong = {name: rows for name, rows in found["after"].items() if any(row[0] is not None for row in rows)}
    assert not wrong


def assert_typed(rows: list[list[Any]]) -> None:
    """Check that each call has its result, or a retryable error with the remedy."""
    for kind, retryable, again_s, message in rows:
        if kind is not None:
            assert kind in PASSING and retryable and again_s is not None and message, (kind, retryable, message)


@paths
def test_without_threads_each_call_has_its_result_or_says_when_to_try_again(
    identity: str, loop: str, open_directory: Path
) -> None:
    found = run(identity, loop, "threads", open_directory)
    assert_all_is_well(found)
    scarce = found["scarce"]
    for name in ("echo", "kept", "here"):
        assert_typed(scarce[name])
    refused = [row for row in scarce["here"] if row[0] is not None]
    assert all(row[0] == "overloaded" and "limit on processes" in row[3] for row in refused)
    assert len(refused) == len(scarce["here"]) or identity == "root", (
        "an idle cell that makes way leaves room in a group"
    )
    assert {row[0] for row in scarce["recall"]} <= {None, "execution", *PASSING}


@paths
def test_without_descriptors_each_call_has_its_result_or_says_when_to_try_again(
    identity: str, loop: str, open_directory: Path
) -> None:
    found = run(identity, loop, "descriptors", open_directory)
    assert_all_is_well(found)
    for name in ("echo", "kept", "here"):
        assert_typed(found["scarce"][name])
    assert any("open files" in row[3] for row in found["scarce"]["kept"])


@pytest.mark.root
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_without_space_for_temporary_files_calls_have_their_results(loop: str, open_directory: Path) -> None:
    found = run("root", loop, "space", open_directory)
    assert_all_is_well(found)
    assert {row[0] for rows in found["scarce"].values() for row in rows} == {None}
