"""A supervisor whose zygote finds another installation of toolcell, because it is started with -I."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers import PATIENCE_S

import toolcell
import toolcell_sandbox
import toolcell_tools

ENTER = {
    "async": """
async def main():
    async with toolcell.Supervisor([]):
        pass
anyio.run(main)
""",
    "blocking": """
with toolcell.blocking.Supervisor([]):
    pass
""",
}
PROGRAM = """
import anyio, psutil, toolcell, toolcell.blocking
try:
{enter}
except toolcell.SandboxUnavailableError as error:
    print(toolcell.__file__, psutil.Process().children(), error, sep=chr(10))
"""


@pytest.mark.parametrize("how", ENTER)
def test_another_installation_in_the_zygote_is_an_error_that_names_both(how: str, tmp_path: Path) -> None:
    for package in (toolcell, toolcell_sandbox, toolcell_tools):
        shutil.copytree(package.__path__[0], tmp_path / package.__name__)
    program = PROGRAM.format(enter=ENTER[how].replace("\n", "\n    "))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd="/",
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    ours, children, message = done.stdout.splitlines()
    assert ours == str(tmp_path / "toolcell" / "__init__.py")
    assert children == "[]"
    assert str(tmp_path / "toolcell") in message and toolcell.__path__[0] in message
    assert "PYTHONPATH" in message
