"""Where protected names go that a call made."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from toolcell_sandbox.quarantine import Quarantine
from toolcell_sandbox.walker import Copies, Root


def taken(quarantine: Quarantine, directory: Path) -> Path:
    """Make a file in the directory, and take it."""
    path = directory / ".envrc"
    path.write_text("evil")
    info = path.stat()
    with Root(str(directory)) as root:
        return Path(quarantine.take(root, ".envrc", (info.st_dev, info.st_ino), Copies()))


@pytest.mark.parametrize("given", [True, False])
def test_it_is_made_again_where_somebody_has_removed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, given: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    quarantine = Quarantine(str(tmp_path / "a/quarantine") if given else None)
    for _ in range(2):
        place = taken(quarantine, workspace)
        assert place.read_text() == "evil" and not os.listdir(workspace)
        assert place.is_relative_to(quarantine.made) and stat.S_IMODE(os.stat(quarantine.made).st_mode) == 0o700
        shutil.rmtree(quarantine.made)


@pytest.mark.parametrize("place", ["quarantine", "."])
def test_one_that_lies_in_the_workspace_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(OSError, match="the quarantine lies in the workspace"):
        taken(Quarantine(str(tmp_path / place)), tmp_path)
    assert (tmp_path / ".envrc").read_text() == "evil"
