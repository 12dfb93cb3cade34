"""What a zygote loads, counted: every module of it is in each cell, and makes each fork longer."""

import json
import subprocess
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any, cast

import pytest
from typing_extensions import TypedDict

from toolcell import Annotations, base_tools, dynamic_tool, tool
from toolcell.sessions.closure import libraries_of
from toolcell.sessions.shipping import shipped
from toolcell_tools.definition import Tool

MODULES = 254  # 249 on Python 3.11, some more on 3.13; with pydantic and asyncio they were 364
HEAVY = {
    "asyncio",
    "cloudpickle",
    "griffe",
    "hashlib",
    "importlib.metadata",
    "jsonschema",
    "logging",
    "pydantic",
    "ssl",
}


class Counts(TypedDict):
    dogs: int


def loaded(preload: Iterable[str] | None, then: str = "") -> dict[str, Any]:
    """The modules of a zygote that was asked to preload, and what else `then` loads in a process forked from it."""
    code = f"""
import json, sys
from toolcell.runner import call_process, zygote
call_process.preload()
call_process.preload_for(json.loads({json.dumps(json.dumps(None if preload is None else list(preload)))}))
modules = set(sys.modules)
{then}
print(json.dumps({{"zygote": sorted(modules), "later": sorted(set(sys.modules) - modules)}}))
"""
    environment = {"TOOLCELL_IN_CELL": "1"}
    command = [sys.executable, "-I", "-c", code]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)
    return found


def preload_of(*tools: Tool[..., Any]) -> list[str]:
    names: set[str] = set()
    for each in tools:
        names.update(cast("list[str]", shipped(each)[0]["preload"]))
    return sorted(names)


def test_for_the_base_tools_a_zygote_loads_nothing_heavy_and_their_cells_nothing_at_all() -> None:
    names = preload_of(*base_tools())
    assert "subprocess" in names, "of which the shell handle is made"
    found = loaded(names, "from toolcell_tools.base import base_tools\nfor each in base_tools(): each.prepare()")
    assert HEAVY.intersection(found["zygote"]) == {"hashlib"}, "of what is written there is a digest"
    assert len(found["zygote"]) <= MODULES
    assert found["later"] == []


@pytest.mark.parametrize(
    ("library", "then"),
    [
        ("asyncio", "async def nothing(): pass\nimport asyncio\nasyncio.run(nothing())"),
        ("cloudpickle", "import cloudpickle"),
        ("hashlib", "import hashlib\nhashlib.sha256()"),
        ("subprocess", "import subprocess"),
        ("pydantic", "from pydantic import BaseModel, TypeAdapter\nclass A(BaseModel):\n x: int\nTypeAdapter(list[A])"),
        ("toolcell_tools.result", "from toolcell_tools.result import ToolResult\nToolResult(output=1)"),
    ],
)
def test_what_a_zygote_has_loaded_its_cells_load_no_more_of(library: str, then: str) -> None:
    assert loaded([library], then)["later"] == []


def test_a_zygote_loads_no_module_of_a_user_whoever_asks() -> None:
    assert "antigravity" not in loaded(["antigravity", "toolcell_tools.base.read"])["zygote"]


def test_tools_that_do_not_say_get_all_that_a_zygote_knows() -> None:
    known = {"asyncio", "cloudpickle", "hashlib", "pydantic", "subprocess", "toolcell_tools.result"}
    assert known <= {*loaded(None)["zygote"]}


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("def f(x: int, y: list[str]) -> str: 'F'", []),
        ("async def f(x: int) -> str: 'F'", ["asyncio"]),
        ("from datetime import date\ndef f(x: date) -> str: 'F'", ["pydantic"]),
        ("def f(x: int) -> str:\n 'F'\n import hashlib", ["hashlib"]),
        ("def f(x: int) -> str:\n 'F'\n import subprocess", ["subprocess"]),
        ("def f(x: int) -> str:\n 'F'\n def g():\n  from pydantic.fields import Field", ["pydantic"]),
        ("import pydantic\ndef f(x: int) -> str:\n 'F'\n return pydantic.VERSION", ["pydantic"]),
        ("import asyncio\ndef g(): asyncio.run\ndef f(x: int) -> str:\n 'F'\n return g()", ["asyncio"]),
        ("import pydantic, asyncio\ndef f(x: int) -> str: 'F'", []),
        (
            "from toolcell import ToolResult\ndef f(x: int) -> str:\n 'F'\n return ToolResult()",
            ["pydantic", "toolcell_tools.result"],
        ),
        ("from toolcell import Annotations, ToolContext, tool\ndef f(x: int) -> str: 'F'", []),
    ],
)
def test_what_goes_by_value_needs_what_it_uses(source: str, needs: list[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "made_up"}
    exec(source, namespace)
    made = tool(namespace["f"], annotations=Annotations(title="F"))
    assert preload_of(made) == sorted(["cloudpickle", *needs])


def test_what_is_imported_needs_all_that_its_module_has(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("installed")
    exec("import pydantic\ndef f(x: int) -> str: 'F'", module.__dict__)
    monkeypatch.setitem(sys.modules, "installed", module)
    assert libraries_of(tool(module.f), pickled=False) == ["pydantic"]


def shown(arguments: Any) -> str:
    """What was given."""
    return repr(arguments)


def test_arguments_of_a_type_need_pydantic_and_those_of_a_schema_do_not() -> None:
    typed = dynamic_tool("typed", parameters=Counts, handler=shown, description="D")
    assert "pydantic" in preload_of(typed)
    as_they_come = dynamic_tool("as_they_come", parameters={"type": "object"}, handler=shown, description="D")
    assert "pydantic" not in preload_of(as_they_come)
