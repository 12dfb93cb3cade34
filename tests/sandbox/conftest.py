"""Fixtures that run the real thing. A cell is made by a single-threaded process, which pytest need not be."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.ordinary import AS_USER, USER

import toolcell_sandbox
from toolcell_sandbox import CellProfile, CgroupTree
from toolcell_sandbox.profile import python_paths

HERE = Path(__file__).parent
SOURCE = str(Path(toolcell_sandbox.__file__).parent.parent)


def unified_mount() -> Path:
    """Where cgroup v2 is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            return Path(left.split(" ")[4])
    raise AssertionError("cgroup v2 is not mounted on this machine")


def unified_controllers() -> frozenset[str]:
    """The controllers of cgroup v2 here; v1 takes away those that it has."""
    return frozenset((unified_mount() / "cgroup.controllers").read_text().split())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs memory and pids in v2 is counted as deselected where they are in v1: no machine has them in both."""
    wanting = [item for item in items if item.get_closest_marker("unified") is not None]
    if wanting and not {"memory", "pids"} <= unified_controllers():
        config.hook.pytest_deselected(items=wanting)
        items[:] = [item for item in items if item not in wanting]


@dataclass
class Result:
    """What a cell did: exit status (negative for a signal), what it printed, and the SandboxError's fields if any."""

    status: int | None
    out: str
    err: str
    timed_out: bool = False
    error: dict[str, object] = field(default_factory=dict)
    findings: list[dict[str, str]] = field(default_factory=list)
    in_force: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> object:
        """The last line printed, as JSON."""
        assert self.status == 0, (self.status, self.err, self.error)
        return json.loads(self.out.splitlines()[-1])


@pytest.fixture
def private_dir(open_directory: Path) -> Path:
    """A directory of a test's own that ordinary users can reach."""
    path = Path(tempfile.mkdtemp(prefix="cell-", dir=open_directory))
    path.chmod(0o755)
    return path


@pytest.fixture
def cell(private_dir: Path, warm: None) -> Callable[..., Result]:
    """`cell(code, profile=…, mode=…, user=…)`: run code in a fresh cell and return a Result.

    `user` drops to an ordinary user first; where pytest is run by one, every cell is that user's anyway.
    """

    def run_in_cell(
        code: str,
        *,
        profile: CellProfile | None = None,
        mode: str | None = None,
        user: bool = False,
        mask_proc: bool = False,
        before: str = "",
        arguments: object = None,
        missing: tuple[str, ...] = (),
        cgroups: tuple[str, ...] = (),
        wrap: tuple[str, ...] = (),
    ) -> Result:
        profile = profile or CellProfile.for_kind("main")
        profile = profile.replace(readable=(*profile.readable, SOURCE))
        answer = private_dir / "answer.json"
        answer.unlink(missing_ok=True)
        order = private_dir / "order.json"
        quarantine = private_dir / "quarantine"
        quarantine.mkdir(exist_ok=True)
        quarantine.chmod(0o777)
        order.write_text(
            json.dumps(
                {
                    "profile": profile.to_wire(),
                    "code": textwrap.dedent(code),
                    "before": textwrap.dedent(before),
                    "arguments": arguments,
                    "mode": mode,
                    "missing": missing,
                    "cgroups": cgroups,
                    "answer": str(answer),
                    "quarantine": str(quarantine),
                }
            )
        )
        order.chmod(0o644)
        command = [sys.executable, "-I", str(HERE / "in_cell.py"), str(order)]
        if user and os.geteuid() == 0:
            answer.touch()
            os.chown(answer, USER, USER)
            flags = ["--mask-proc"] if mask_proc else []
            paths = [*python_paths(), SOURCE, str(HERE), str(private_dir), *profile.readable, *profile.writable]
            as_user = [sys.executable, "-I", str(AS_USER), str(USER), *flags, *paths, "--"]
            command = [*as_user, *command]
        if wrap:
            command = [*wrap, *command]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        else:
            done = programs.run(command, timeout=120)
        text = answer.read_text() if answer.exists() else ""
        assert text, f"the process that makes the cell failed ({done.returncode}):\n{done.stderr}"
        told = json.loads(text)
        return Result(
            told.get("status"),
            done.stdout,
            done.stderr,
            told.get("timed_out", False),
            told.get("error", {}),
            told.get("findings", []),
            told.get("in_force", {}),
        )

    return run_in_cell


@pytest.fixture(params=["root", "rootless"])
def any_cell(request: pytest.FixtureRequest, cell: Callable[..., Result]) -> Callable[..., Result]:
    """`cell`, as root and as an ordinary user."""
    if request.param == "root":
        return cell
    return lambda code, **options: cell(code, user=True, **options)


@pytest.fixture
def tree() -> CgroupTree:
    """This machine's cgroups; the reference machine has them."""
    found = CgroupTree.detect()
    assert found is not None, "no writable memory and pids cgroups on this machine"
    return found
