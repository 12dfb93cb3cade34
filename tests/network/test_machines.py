"""The network policies as root and as an ordinary user, on both event loops, in a program of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import toolcell_sandbox
from toolcell_sandbox.profile import python_paths

from .conftest import require_program

HERE = Path(__file__).parent
AS_USER = HERE.parent / "sandbox" / "as_user.py"
SOURCES = [str(Path(toolcell_sandbox.__file__).parent.parent.parent), str(HERE)]
USER = 12345


@pytest.mark.parametrize("identity", ["root", "user"] if os.geteuid() == 0 else ["user"])
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_policies_hold_and_work(identity: str, loop: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    require_program("curl", "curl")
    workspace = tmp_path_factory.mktemp("work space")
    command = [sys.executable, "-I", str(HERE / "scenario.py"), str(workspace), loop]
    if identity == "user" and os.geteuid() == 0:
        base = tmp_path_factory.getbasetemp().parent
        for parent in workspace.parents:  # pytest's own are 0700
            if parent == base.parent:
                break
            parent.chmod(parent.stat().st_mode | 0o011)
        os.chown(workspace, USER, USER)
        command = [sys.executable, "-I", str(AS_USER), str(USER), *python_paths(), *SOURCES, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd="/")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["identity"] == ("root" if identity == "root" else "rootless")
    assert found["curl"] == found["tunnel"] == [0, "hello there\n"]
    assert found["refused"] == found["private"] == [56, ""]
    assert found["proxied"] == {"connect": "Permission denied", "udp": "Address family not supported by protocol"}
    assert found["host"] == {"connect": "worked", "udp": "worked"} and found["network"] == "host"
    hosts = ["packages.test", "packages.test", "evil.test", "good.test"]
    assert found["records"] == [[host, host == "packages.test"] for host in hosts]
