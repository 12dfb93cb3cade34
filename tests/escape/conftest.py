"""A place for what the programs are after, which an ordinary user can reach: pytest's own directories are 0700."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NewStage = Callable[[], Path]


@pytest.fixture(scope="module")
def new_stage() -> Iterator[NewStage]:
    """Make a directory of one's own; all of them are removed at the end."""
    made: list[Path] = []

    def make() -> Path:
        path = Path(tempfile.mkdtemp(prefix="toolcell-escape-", dir="/tmp"))
        path.chmod(0o755)
        made.append(path)
        return path

    yield make
    for path in made:
        shutil.rmtree(path)
