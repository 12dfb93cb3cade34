"""A runtime directory and a temporary directory of a test's own."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Place:
    """A directory with a separate runtime directory, `run`, and a separate temporary directory, `temporary`."""

    path: Path

    @property
    def records(self) -> list[Path]:
        return sorted((self.path / "run" / "toolcell").glob("*.record"))


@pytest.fixture
def place(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(Path(tempfile.mkdtemp(dir=open_directory)))
    place.path.chmod(0o755)
    for name in ("run", "temporary"):
        (place.path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.path / "run"))
    monkeypatch.setenv("TMPDIR", str(place.path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", str(place.path / "temporary"))
    return place
