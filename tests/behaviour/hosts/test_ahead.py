"""Prewarmed and prespawned cells on unusual hosts."""

from pathlib import Path

import pytest

from .conftest import HERE, PYTHON, command_on, told

pytestmark = [pytest.mark.root, pytest.mark.trick]


@pytest.mark.parametrize(("steps", "ahead"), [("own_mounts", [0, 1, 1]), ("no_setns", [0, 1, 0])])
def test_where_nobody_may_enter_a_cell_each_is_made_for_its_session(
    steps: str, ahead: list[int], open_directory: Path
) -> None:
    place = str(open_directory)
    found = told(command_on(steps, [*PYTHON, str(HERE / "sessions.py"), place, place, place]))
    assert (found["answers"], found["ahead"]) == (["", "", ""], ahead)
    assert (open_directory / "note.txt").read_text() == place


def test_a_workspace_without_id_mapped_mounts_is_mounted_another_way(open_directory: Path) -> None:
    """The prewarmed cell is ended, because its uid cannot be the owner's there."""
    places = [str(open_directory / name) for name in ("tmpfs", "overlay", "mount within", "overlay")]
    found = told(command_on(f"file_systems={open_directory}", [*PYTHON, str(HERE / "sessions.py"), *places]))
    assert found["answers"] == [""] * 4
    assert found["ahead"][1] == 1, "one that could not be finished"
    assert len(set(found["mounts"])) == 1, "nothing of it is held"


@pytest.mark.parametrize("standby", [False, True])
def test_what_waits_for_a_session_does_not_hold_what_was_unmounted(standby: bool, open_directory: Path) -> None:
    workspace, disk = open_directory / f"workspace-{standby}", open_directory / f"disk-{standby}"
    workspace.mkdir()
    disk.mkdir()
    command = [*PYTHON, str(HERE / "unmounted.py"), str(workspace), str(disk), str(standby)]
    found = told(command_on("own_mounts", command))
    assert found == {"waiting": 1 + standby, "held": 1, "another": True}
