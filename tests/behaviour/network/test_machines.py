"""The network policies as root and as an ordinary user, on both event loops, in a separate program."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from tests import programs
from tests.ordinary import AS_USER, USER

import toolcell_sandbox
from toolcell_sandbox.profile import python_paths

from .conftest import require_program

HERE = Path(__file__).parent
SOURCES = [str(Path(toolcell_sandbox.__file__).parent.parent.parent), str(HERE)]


@pytest.mark.parametrize(
    ("identity", "loop"),
    [("root", "asyncio"), ("user", "trio")] if os.geteuid() == 0 else [("user", "asyncio"), ("user", "trio")],
)
def test_the_policies_hold_and_work(identity: str, loop: str, open_directory: Path, warm: None) -> None:
    require_program("curl", "curl")
    workspace = Path(tempfile.mkdtemp(prefix="work space ", dir=open_directory))
    command = [sys.executable, "-I", str(HERE / "scenario.py"), str(workspace), loop]
    if identity == "user" and os.geteuid() == 0:
        os.chown(workspace, USER, USER)
        command = [sys.executable, "-I", str(AS_USER), str(USER), *python_paths(), *SOURCES, "--", *command]
    done = programs.run(command, cwd="/")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["identity"] == ("root" if identity == "root" else "rootless")
    assert found["curl"] == found["tunnel"] == [0, "hello there\n"]
    assert found["refused"] == found["private"] == [56, ""]
    assert found["proxied"] == {"connect": "Permission denied", "udp": "Address family not supported by protocol"}
    assert found["host"] == {"connect": "worked", "udp": "worked"} and found["network"] == "host"
    hosts = ["packages.example.org", "packages.example.org", "evil.example.org", "good.example.org"]
    assert found["records"] == [[host, host == "packages.example.org"] for host in hosts]
