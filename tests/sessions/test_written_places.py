"""Real paths, without links that a call may have made."""

import os
from pathlib import Path

import pytest

from toolcell import UsageError
from toolcell.sessions import written_places
from toolcell.sessions.written_places import WrittenPlaces


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "project" / "directory").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


def test_without_written_places_it_is_realpath(top: Path) -> None:
    places = WrittenPlaces()
    (top / "link").symlink_to("project/../elsewhere")
    (top / "elsewhere" / "back").symlink_to(top / "project")
    for path in (
        "link",
        "link/back/directory",
        "link/nothing/here",
        "project//./directory",
        "link/../project",
        "a/../b",
    ):
        assert places.real("A path", f"{top}/{path}") == os.path.realpath(f"{top}/{path}")


@pytest.mark.parametrize("target", ["../elsewhere", "/", "directory"])
def test_a_link_in_a_written_place_is_refused(top: Path, target: str) -> None:
    places = WrittenPlaces()
    places.add(str(top / "project"))
    (top / "project" / "link").symlink_to(target)
    with pytest.raises(UsageError, match=r"^A path passes the symbolic link '.*/project/link': .* a call may have put"):
        places.real("A path", f"{top}/project/link/inner")
    assert places.real("A path", f"{top}/project/directory") == str(top / "project" / "directory")


def test_a_link_that_is_reached_by_another_link_is_refused(top: Path) -> None:
    (top / "outer").symlink_to("project")
    (top / "project" / "link").symlink_to(top / "elsewhere")
    with pytest.raises(UsageError, match="project/link"):
        WrittenPlaces().real("A path", f"{top}/outer/directory/../link", (str(top / "project"),))


def test_a_link_to_a_written_place_is_none_in_it(top: Path) -> None:
    places = WrittenPlaces()
    places.add(str(top / "project"))
    (top / "link").symlink_to("project")
    assert places.real("A path", f"{top}/link/directory") == str(top / "project" / "directory")


def test_a_circle_of_links_is_refused(top: Path) -> None:
    (top / "one").symlink_to("two")
    (top / "two").symlink_to("one")
    with pytest.raises(UsageError, match="too many symbolic links"):
        WrittenPlaces().real("A path", f"{top}/one/x")


def test_the_oldest_place_is_forgotten_and_one_that_is_met_again_is_not(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_places, "MAX_KEPT", 2)
    places = WrittenPlaces()
    for name in ("project", "b", "project", "c"):
        places.add(str(top / name))
    (top / "project" / "link").symlink_to(top / "elsewhere")
    with pytest.raises(UsageError, match="project/link"):
        places.real("A path", f"{top}/project/link")
