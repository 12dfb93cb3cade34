"""Every class has a name of its own."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.docs.pages import ROOT

MIRRORED = {"Session", "Supervisor"}
"""`toolcell.blocking` has the public classes once more, without an event loop, and under their names."""


def test_every_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for source in ("executor/toolcell", "sandbox/toolcell_sandbox", "tools/toolcell_tools"):
        for path in (ROOT / source).rglob("*.py"):
            for name in classes(ast.parse(path.read_text()).body):
                places[name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in MIRRORED} == {}
    assert all("executor/toolcell/blocking.py" in places[name] and len(places[name]) == 2 for name in MIRRORED)


def classes(body: list[ast.stmt]) -> Iterator[str]:
    """The classes of a module, those under a condition too."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.If):
            yield from classes([*node.body, *node.orelse])
