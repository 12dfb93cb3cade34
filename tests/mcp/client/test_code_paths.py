"""The files that a cell must read to run a command."""

import os
import sys
from pathlib import Path

import pytest

from toolcell.mcp.client.server_source import code_paths, program_of


def file(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_a_file_is_shown_alone_and_a_directory_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = file(tmp_path / "server.py")
    file(tmp_path / "other.py")
    monkeypatch.chdir(tmp_path)  # a relative path is the server's own, in its cell
    assert code_paths(["/usr/bin/env", script, str(tmp_path), "other.py", "/nowhere"]) == (script,)


def test_a_file_of_node_modules_brings_all_of_them(tmp_path: Path) -> None:
    script = file(tmp_path / "node_modules/@scope/server/node_modules/inner/index.js")
    assert code_paths(["node", script]) == (str(tmp_path / "node_modules"),)


def test_a_script_of_a_virtual_environment_brings_it_and_its_base(tmp_path: Path) -> None:
    base = tmp_path / "python/bin"
    base.mkdir(parents=True)
    file(tmp_path / "venv/pyvenv.cfg", f"home = {base}\n")
    script = file(tmp_path / "venv/bin/server")
    assert code_paths([script]) == (str(tmp_path / "venv"), str(tmp_path / "python"))


def test_a_program_is_found_on_the_path_by_what_it_links_to(tmp_path: Path) -> None:
    real = file(tmp_path / "real/server")
    link = tmp_path / "server"
    link.symlink_to(real)
    assert program_of(str(link)) == os.path.realpath(real)
    assert program_of(sys.executable) == sys.executable  # a virtual environment is known by the path
    assert program_of("no-such-program") == "no-such-program"
