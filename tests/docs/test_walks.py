"""The walks through the code, in a design page and in docstrings: every function that a walk names is in its file."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "executor/toolcell"
STOPS = re.compile(r"^- `(?P<file>[\w/]+\.py)`: (?P<text>.*)$", re.MULTILINE)
NAME = re.compile(r"`((?:[A-Z]\w*\.)?_?[a-z]\w*)`")
WALKS = {
    "the runtime's page": (ROOT / "executor/README.md").read_text(),
    **{
        room: ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or ""
        for room in ("pool", "dispatch")
    },
}


def functions(file: Path) -> set[str]:
    """The functions of a module, and its methods as Class.method."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        found |= {
            f"{prefix}{each.name}" for each in members if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return found


@pytest.mark.parametrize("walk", WALKS)
def test_every_function_of_a_walk_is_in_its_file(walk: str) -> None:
    stops = [(stop["file"], NAME.findall(stop["text"])) for stop in STOPS.finditer(WALKS[walk])]
    missing = [(file, name) for file, names in stops for name in names if name not in functions(PACKAGE / file)]
    assert missing == []
    assert len(stops) >= 8 and all(names for _file, names in stops)
