"""Imports go one way: no step of a call knows a session or a supervisor, not even as a type."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolcell.dispatch

ROOT = Path(__file__).parent.parent.parent
ABOVE = ("toolcell.session", "toolcell.supervisor", "toolcell.runtime", "toolcell.blocking")
STEPS = sorted(Path(toolcell.dispatch.__path__[0]).glob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Every module that the file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level < 2, "what lies outside of the package is imported by its whole name"
            module = ".".join(filter(None, ("toolcell.dispatch" if node.level == 1 else "", node.module)))
            yield module
            yield from (f"{module}.{each.name}" for each in node.names)


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
def test_no_step_imports_what_is_above_it(path: Path) -> None:
    found = [name for name in imported(path) if name in ABOVE or name.startswith(tuple(f"{each}." for each in ABOVE))]
    assert found == []


def test_the_contracts_of_imports_hold_for_imports_of_types_without_exceptions() -> None:
    """`.ci/check` has import-linter hold them."""
    settings = (ROOT / "pyproject.toml").read_text()
    assert "[tool.importlinter]" in settings
    assert "exclude_type_checking_imports" not in settings and "ignore_imports" not in settings
