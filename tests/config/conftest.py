"""Three places for a toolcell.toml, none of which is the one of whoever runs the tests."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from toolcell import Config, ConfigError, load_config
from toolcell.rules.toml.source import NAME


@dataclass
class Places:
    """Write a layer by its name, and load what is there."""

    user_folder: Path
    project_folder: Path
    explicit_file: Path

    def user(self, text: str) -> Path:
        return _written(self.user_folder / "toolcell" / NAME, text)

    def project(self, text: str) -> Path:
        return _written(self.project_folder / NAME, text)

    def explicit(self, text: str) -> Path:
        return _written(self.explicit_file, text)

    def load(self) -> Config:
        file = self.explicit_file if self.explicit_file.exists() else None
        return load_config(self.project_folder, file=file)

    def complaints(self) -> list[str]:
        """What is wrong, without the places."""
        with pytest.raises(ConfigError) as caught:
            self.load()
        return [f"{problem.key}: {problem.message}" for problem in caught.value.problems]


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("config", "home", "repository"):
        (tmp_path / name).mkdir()
    return Places(tmp_path / "config", tmp_path / "repository", tmp_path / "explicit.toml")
