"""Making tools: what is refused, and what a Tool knows."""

import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from toolcell_tools import PermissionTier, ToolDefinitionError, as_tool, tool


def refused(definition: Any, message: str, **options: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        tool(definition, **options)


def test_star_arguments_are_refused() -> None:
    def many(*paths: str) -> None: ...
    def named(**paths: str) -> None: ...

    refused(many, r"'many': \*paths has no schema\. Name each argument")
    refused(named, r"\*\*paths has no schema")


def test_positional_only_parameters_are_refused() -> None:
    def only(path: str, /) -> None: ...

    refused(only, "'path' is positional-only.*Remove the '/'")


def test_a_parameter_without_a_type_is_refused_with_the_way_to_mend_it() -> None:
    def bare(path) -> None: ...  # type: ignore[no-untyped-def]
    def context(ctx, path: str) -> None: ...  # type: ignore[no-untyped-def]

    refused(bare, "'path' has no type. Write for example `path: str`")
    refused(context, "Write `ctx: ToolContext`")


def test_a_method_is_refused_and_its_bound_self_is_not() -> None:
    class Box:
        def put(self, thing: str) -> str:
            return thing

    refused(Box.put, r"Wrap the bound method instead: tool\(obj.method\)")
    assert tool(Box().put)("x") == "x"


def test_a_type_without_a_schema_is_refused_by_name() -> None:
    class Opaque: ...

    def take(thing: Opaque) -> None: ...

    refused(take, "the type of parameter 'thing' has no JSON Schema")


def test_the_schema_is_generated_once_when_the_tool_is_made() -> None:
    generated: list[str] = []

    class Counted:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            return handler(str)

        @classmethod
        def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
            generated.append("")
            return {"type": "string"}

    def take(thing: Counted) -> None: ...

    made = tool(take)
    assert (n := len(generated)) > 0, "at once"
    for _ in range(3):
        assert made.declaration.parameters_schema["properties"] == {"thing": {"type": "string"}}
        assert made.bind({"thing": "x"}, None) == {"thing": "x"}
    assert made.declaration is made.declaration and len(generated) == n


def test_a_literal_of_enum_members_is_refused_because_no_json_could_meet_it() -> None:
    class Mode(Enum):
        FAST = "fast"

    def run(mode: Literal[Mode.FAST] | None) -> None: ...

    refused(run, "'mode' is a Literal of enum members.*Use the enum itself")


def test_a_type_that_is_not_defined_is_refused_by_name() -> None:
    def take(thing: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    refused(take, "the type of 'thing' is 'Nowhere'.*Import or define it at module level")


def test_a_default_must_fit_its_type_and_be_json() -> None:
    def no_none(path: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
    def sentinel(path: Any = object()) -> None: ...  # noqa: B008

    refused(no_none, "the default of parameter 'path', None, does not fit its type.*None")
    refused(sentinel, "is not JSON data")


def test_a_field_in_the_wrong_place_is_refused() -> None:
    def as_default(n: int = Field(3, ge=1)) -> None: ...
    def default_inside(n: Annotated[int, Field(default=3)]) -> None: ...
    def aliased(n: Annotated[int, Field(alias="m")]) -> None: ...

    refused(as_default, "has a Field as its default. Write `n: Annotated")
    refused(default_inside, "Write it after `=`")
    refused(aliased, "has an alias")


def test_generators_are_refused() -> None:
    def lines() -> Iterator[str]:
        yield ""

    async def alines() -> AsyncIterator[str]:
        yield ""

    refused(lines, "is a generator.*Return a list")
    refused(alines, "is a generator")


@pytest.mark.parametrize(
    ("name", "cure"),
    [("SaveFile", "save_file"), ("2fast", "tool_2fast"), ("a-b", "a_b"), ("a" * 64, "a" * 63), ("", "my_tool")],
)
def test_a_wrong_name_is_refused_with_one_that_would_do(name: str, cure: str) -> None:
    def do() -> None: ...

    refused(do, f"pass name={cure!r}", name=name)
    assert tool(do, name=cure).name == cure


@pytest.mark.parametrize("name", ["handoff", "toolcell_status"])
def test_reserved_names_are_refused(name: str) -> None:
    def do() -> None: ...

    refused(do, "is reserved. Rename the function", name=name)


def test_a_lambda_needs_a_name() -> None:
    refused(lambda: 1, "tool name '<lambda>'.*pass name=")


def test_a_description_has_at_most_1024_characters() -> None:
    def do() -> None: ...

    assert len(tool(do, description="x" * 1024).declaration.description) == 1024
    refused(do, "has 1,025 characters and may have 1,024. Shorten", description="x" * 1025)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout=0. Pass a number above 0"),
        ({"limits": {"wall_s": -1}}, r"limits\['wall_s'\]=-1"),
        ({"lifetime": "forever"}, "Pass 'call' or 'session'"),
        ({"tier": "readonly"}, "Pass 'read_only' or 'workspace' or 'system' or 'elevated'."),
        ({"needs": {"fly"}}, "'fly' is not a valid Capability.*Use members of Capability: read, "),
        ({"needs": "write"}, "needs='write' is not a set. Write needs={'write'}"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    def do() -> None: ...

    refused(do, message, **options)


def test_a_tool_is_not_wrapped_twice_by_tool_and_kept_by_as_tool() -> None:
    @tool
    def do() -> None: ...

    refused(do, "is a tool already")
    assert as_tool(do) is do


@pytest.mark.parametrize("thing", [3, "read", int, None])
def test_as_tool_refuses_what_is_not_a_function(thing: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="Pass a Tool or a plain function"):
        as_tool(thing)


def test_a_plain_function_becomes_a_tool_by_its_own_name() -> None:
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    made = as_tool(add)
    assert (made.name, made.declaration.description, made(1)) == ("add", "Add two numbers.", 3)


def test_every_way_to_decorate_keeps_the_function_callable() -> None:
    @tool
    def one(a: int) -> int:
        return a

    @tool(name="second")
    def two(a: int) -> int:
        return a

    assert (one(1), two(2), tool(lambda: 3, name="three")()) == (1, 2, 3)
    assert (one.name, two.name, one.__name__) == ("one", "second", "one")
    assert repr(one) == "<Tool one 1.0.0 [read_only · needs: nothing]>"


async def _later(a: int) -> int:
    return a


def test_async_functions_are_known_also_inside_partials_and_callable_objects() -> None:
    class Caller:
        async def __call__(self, a: int) -> int:
            return a

    assert tool(_later, name="later").is_async
    assert tool(functools.partial(_later, a=1), name="later").is_async
    assert tool(Caller(), name="caller").is_async
    assert not tool(lambda: 1, name="now").is_async


def test_a_tier_can_be_given() -> None:
    def do() -> None: ...

    assert tool(do, tier=PermissionTier.ELEVATED).declaration.tier is PermissionTier.ELEVATED


IN_CELL = """
import sys
from toolcell_tools import tool, ToolContext, Capability
@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, path: str, times: int = 1) -> str:
    '''Save.

    Args:
        path: Where.
    '''
    return path
assert save.bind({"path": "a", "times": 2.0}, None) == {"path": "a", "times": 2, "ctx": None}
import toolcell_tools.encode, toolcell_tools.workspace, toolcell_tools.shell
heavy = {"pydantic", "griffe", "jsonschema", "asyncio"} & sys.modules.keys()
assert not heavy, heavy
assert save.declaration.parameters_schema["properties"]["path"]["description"] == "Where."
"""


def test_in_a_cell_nothing_heavy_is_imported_until_a_declaration_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", IN_CELL],
        env={"TOOLCELL_IN_CELL": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # -I keeps PYTHON* variables out, not TOOLCELL_IN_CELL.
    assert done.returncode == 0, done.stderr
