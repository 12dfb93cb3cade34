"""The runtime directory: the user's own, whoever makes it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.ordinary import AS_USER, USER

import toolcell
from toolcell_sandbox.profile import python_paths

from .conftest import Place

SOURCE = Path(toolcell.__file__).parent.parent


def test_a_runtime_directory_that_is_made_under_any_umask_is_the_users(place: Place) -> None:
    code = "import os; os.umask(0o777); from toolcell.workplaces.runtime import RuntimeDirectory as R; print(R().path)"
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        os.chown(place.path / "run", USER, USER)
        shown = [*python_paths(), str(SOURCE.parent), str(place.path)]
        command = [sys.executable, str(AS_USER), str(USER), *shown, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    made = place.path / "run" / "toolcell"
    assert (done.stderr, done.stdout) == ("", f"{made}\n") and made.stat().st_mode & 0o777 == 0o700
