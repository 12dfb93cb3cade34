"""No two modules import each other, by whatever way round."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

PACKAGES = {"toolcell": "executor", "toolcell_sandbox": "sandbox", "toolcell_tools": "tools"}


def test_no_circle_of_imports() -> None:
    assert list(circles(graph())) == []


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"f", "d"}, "f": {"e"}}
    assert sorted(circles(imports)) == [["a", "b", "c"], ["e", "f"]]


def graph() -> dict[str, set[str]]:
    """Each module with those of ours that it imports: in a function, or for a type only, too."""
    files = {
        ".".join(path.relative_to(ROOT / folder).with_suffix("").parts): path
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder / package).rglob("*.py")
    }
    known = {name.removesuffix(".__init__") for name in files}
    assert len(known) == len(files) > 200
    return {
        name.removesuffix(".__init__"): set(imported(name, path, known)) - {name.removesuffix(".__init__")}
        for name, path in files.items()
    }


def imported(name: str, path: Path, known: set[str]) -> Iterator[str]:
    """The modules that the file imports: a submodule itself, not the package that `from package import it` names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from {each.name for each in node.names} & known
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            package = ".".join([*above, *filter(None, [node.module])])
            for each in node.names:
                yield from {f"{package}.{each.name}"} & known or {package} & known


def circles(imports: dict[str, set[str]]) -> Iterator[list[str]]:
    """The largest sets of modules each of which leads to all others of the set."""
    reach = {name: reached(imports, name) for name in imports}
    left = sorted(name for name in imports if name in reach[name])
    while left:
        circle = [name for name in left if name in reach[left[0]] and left[0] in reach[name]]
        left = [name for name in left if name not in circle]
        yield circle


def reached(imports: dict[str, set[str]], start: str) -> set[str]:
    """All that the module leads to; itself only by a circle."""
    found: set[str] = set()
    todo = [start]
    while todo:
        fresh = imports[todo.pop()] - found
        found |= fresh
        todo += fresh
    return found
