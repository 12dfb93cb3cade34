"""The identity of the code that a process runs."""

import json
import subprocess
import sys
from pathlib import Path

import toolcell
from toolcell.wire.messages import VERSION, running_code


def code_of(place: str) -> dict[str, str]:
    """The code of an interpreter that finds toolcell there first."""
    program = (
        f"import sys, json; sys.path.insert(0, {place!r}); from toolcell.wire.messages import running_code;"
        "print(json.dumps(running_code()))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_code_is_named_by_its_python_its_protocol_and_its_places() -> None:
    code = running_code()
    assert code["Python"] == sys.version and code["protocol"] == str(VERSION)
    assert Path(code["toolcell"]) / "__init__.py" == Path(toolcell.__file__).resolve()
    assert {"toolcell_sandbox", "toolcell_tools"} <= code.keys()


def test_the_same_code_by_another_path_is_the_same_and_a_copy_is_not(tmp_path: Path) -> None:
    source = Path(toolcell.__file__).resolve().parent
    (tmp_path / "link").symlink_to(source.parent)
    assert code_of(str(tmp_path / "link")) == running_code()
    (tmp_path / "copy/toolcell").mkdir(parents=True)
    for path in source.iterdir():
        if path.name != "wire":
            (tmp_path / "copy/toolcell" / path.name).symlink_to(path)
    (tmp_path / "copy/toolcell/wire").mkdir()
    for path in (source / "wire").glob("*.py"):
        (tmp_path / "copy/toolcell/wire" / path.name).write_bytes(path.read_bytes())
    copied = code_of(str(tmp_path / "copy"))
    assert copied == running_code() | {"toolcell": str(tmp_path / "copy/toolcell")}
