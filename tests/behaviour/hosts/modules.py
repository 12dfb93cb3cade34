"""Tools from every kind of place that Python imports from, run as a program: `python modules.py DIRECTORY`.

It makes the places below the directory, where no cell sees them, and prints each tool's answer or error.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import types
import zipfile
from collections.abc import Sequence
from pathlib import Path

import anyio

from toolcell import Supervisor, Tool
from toolcell.supervisor import runtime_of

SOURCE = '''
from toolcell import tool
from helper import shout

@tool
def {name}() -> str:
    """Say where this is from."""
    return shout(__name__)
'''


class EditableFinder(importlib.abc.MetaPathFinder):
    """The finder of an editable install by setuptools (PEP 660): a package's name, and the place of its source."""

    def __init__(self, name: str, source: Path) -> None:
        self.name, self.source = name, source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(fullname, self.source) if fullname == self.name else None


def write(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SOURCE.format(name=name))
    return path


def imported(base: Path) -> list[Tool[..., object]]:
    """Import one tool from each place."""
    plain, archive, checkout = base / "plain", base / "tools.zip", base / "checkout"
    plain.mkdir()
    (plain / "helper.py").write_text("def shout(text):\n    return text.upper()\n")
    write(plain / "in_a_directory.py", "in_a_directory")
    write(plain / "namespace" / "inner" / "below.py", "in_a_namespace_package")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped.py", SOURCE.format(name="in_a_zip"))
    write(checkout / "src" / "editable.py", "in_an_editable_install")
    (checkout / "path").mkdir()
    write(checkout / "path" / "pth_editable.py", "in_a_path_file")
    sys.path[:0] = [str(plain), str(archive), str(checkout / "path")]
    sys.meta_path.append(EditableFinder("editable", checkout / "src" / "editable.py"))
    tools = [
        getattr(importlib.import_module(module), name)
        for module, name in (
            ("in_a_directory", "in_a_directory"),
            ("namespace.inner.below", "in_a_namespace_package"),
            ("zipped", "in_a_zip"),
            ("editable", "in_an_editable_install"),
            ("pth_editable", "in_a_path_file"),
        )
    ]
    for name, scope in (("without_a_file", {"__name__": "notebook"}), ("without_a_name", {})):
        exec(compile(SOURCE.format(name=name), "<cell 1>", "exec"), scope)
        tools.append(scope[name])
    return tools


def in_main() -> str:
    """Return where this function is from."""
    return __name__.upper()


async def main(base: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    (base / "workspace").mkdir()
    async with Supervisor([*imported(base), in_main]) as supervisor:
        session = await supervisor.open_session("main", workspace=base / "workspace")
        for name in runtime_of(supervisor).settings.tools:
            result = await session.call(name)
            found[name] = result.output if result.error is None else result.error.message
    return found


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]))))
