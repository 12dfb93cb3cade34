"""TypedTool: one model is all of the parameters; set up, called and torn down in one process."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import cloudpickle
import pytest
from pydantic import BaseModel, Field, model_validator
from typing_extensions import TypedDict

from toolcell_tools import (
    Capability,
    PermissionTier,
    Preview,
    ToolContext,
    ToolDefinitionError,
    TypedTool,
    TypedToolAdapter,
    as_tool,
)


class ReadFileInput(BaseModel):
    """What Dive's example reads."""

    file_path: str
    offset: Annotated[int | None, Field(ge=1, description="1-based")] = None
    limit: int | None = None


class ReadFile(TypedTool[ReadFileInput]):
    """Read lines of a file."""

    needs = {Capability.READ}  # noqa: RUF012
    version = "2.1.0"

    def call(self, ctx: ToolContext, input: ReadFileInput) -> str:
        return f"{input.file_path}@{input.offset}"

    def preview(self, ctx: ToolContext, input: ReadFileInput) -> Preview:
        return Preview(f"Read {input.file_path}")


def called(tool: TypedTool[Any], arguments: dict[str, Any], ctx: ToolContext | None = None) -> object:
    return tool.tool.run(tool.tool.bind(arguments, ctx), ctx)


def test_a_typed_tool_declares_what_its_class_says() -> None:
    declaration = ReadFile().declaration
    assert (declaration.name, declaration.description, declaration.version) == (
        "read_file",
        "Read lines of a file.",
        "2.1.0",
    )
    assert (declaration.kind, declaration.tier, declaration.has_preview) == ("typed", PermissionTier.READ_ONLY, True)
    schema = declaration.parameters_schema
    assert (schema["type"], schema["required"]) == ("object", ["file_path"])
    assert schema["properties"]["offset"]["description"] == "1-based"


def test_a_typed_tool_gets_its_model_and_previews_with_it() -> None:
    assert called(ReadFile(), {"file_path": "a", "offset": 3}) == "a@3"
    assert ReadFile().tool.preview(None, {"file_path": "a"}) == Preview("Read a")


def test_an_instance_is_a_tool_wherever_tools_are_taken_and_a_class_is_not() -> None:
    instance = ReadFile()
    assert as_tool(instance) is instance.tool
    assert isinstance(instance.tool, TypedToolAdapter)
    with pytest.raises(ToolDefinitionError, match=r"Pass an instance: ReadFile\(\)"):
        as_tool(ReadFile)


@dataclass
class Sum:
    a: int
    b: int = 2


class Pair(TypedDict):
    left: int
    right: int


class Node(BaseModel):
    name: str
    children: "list[Node]" = Field(default_factory=list["Node"])


class Aliased(BaseModel):
    from_: str = Field(alias="from")


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Pet(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Ordered(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def _in_order(self) -> "Ordered":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def echoing(kind: Any) -> TypedTool[Any]:
    class Echo(TypedTool[kind]):
        def call(self, ctx: ToolContext, input: Any) -> Any:
            return input

    return Echo()


@pytest.mark.parametrize(
    ("kind", "arguments", "value"),
    [
        (Sum, {"a": 1}, Sum(1, 2)),
        (Pair, {"left": 1, "right": 2}, {"left": 1, "right": 2}),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node(name="a", children=[Node(name="b")])),
        (Aliased, {"from": "x"}, Aliased.model_validate({"from": "x"})),
        (Pet, {"pet": {"kind": "dog", "tricks": []}}, Pet(pet=Dog(kind="dog", tricks=[]))),
        (Sum | None, {"a": 1}, Sum(1, 2)),
        (dict[str, int], {"x": 1}, {"x": 1}),
    ],
    ids=["dataclass", "TypedDict", "recursive", "alias", "discriminated", "optional", "mapping"],
)
def test_every_kind_of_object_type_is_declared_as_an_object_and_bound(
    kind: Any, arguments: dict[str, Any], value: object
) -> None:
    tool = echoing(kind)
    assert tool.declaration.parameters_schema["type"] == "object"
    assert called(tool, arguments) == value


def test_aliases_are_declared_as_they_are_validated() -> None:
    assert echoing(Aliased).declaration.parameters_schema["required"] == ["from"]


def test_a_recursive_model_has_its_object_at_the_root_and_its_definitions_beside_it() -> None:
    schema = echoing(Node).declaration.parameters_schema
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert "Node" in schema["$defs"]


def test_a_model_validator_refuses_what_the_schema_cannot() -> None:
    with pytest.raises(ValueError, match="low is above high"):
        echoing(Ordered).tool.bind({"low": 2, "high": 1}, None)


@pytest.mark.parametrize("kind", [int, str, list[str], Any], ids=str)
def test_parameters_that_are_no_object_are_refused_when_the_class_is_made(kind: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"whose JSON is no object.*Put it into a dataclass"):
        echoing(kind)


def test_a_class_without_its_type_or_with_one_that_has_no_schema_is_refused_at_once() -> None:
    class Opaque:
        pass

    with pytest.raises(ToolDefinitionError, match=r"Write class Bare\(TypedTool\[Parameters\]\)"):

        class Bare(TypedTool):  # type: ignore[type-arg]
            def call(self, ctx: ToolContext, input: Any) -> None: ...

    with pytest.raises(ToolDefinitionError, match="have no JSON Schema"):
        echoing(Opaque)


In = TypeVar("In")


class Logged(TypedTool[In], Generic[In]):
    def call(self, ctx: ToolContext, input: In) -> str:
        return f"<{input}>"


def test_a_generic_class_between_takes_its_type_from_the_one_below() -> None:
    class LoggedSum(Logged[Sum]):
        pass

    assert called(LoggedSum(), {"a": 1}) == "<Sum(a=1, b=2)>"


class Counting(TypedTool[Sum]):
    """Count."""

    def __init__(self, log: list[str], start: int = 0) -> None:
        self.log = log
        self.name = f"count_from_{start}"
        self.count = start

    def setup(self, ctx: ToolContext) -> Any:
        self.log.append("setup")

    def call(self, ctx: ToolContext, input: Sum) -> Any:
        self.log.append("call")
        self.count += input.a
        return self.count

    def teardown(self) -> Any:
        self.log.append("teardown")


class CountingAsync(Counting):
    async def setup(self, ctx: ToolContext) -> Any:
        import asyncio

        self.loop = asyncio.get_running_loop()

    async def call(self, ctx: ToolContext, input: Sum) -> Any:
        import asyncio

        return self.loop is asyncio.get_running_loop()

    async def teardown(self) -> Any:
        import asyncio

        assert self.loop is asyncio.get_running_loop()
        self.log.append("teardown")


def test_a_tool_of_a_calls_lifetime_is_set_up_and_torn_down_around_the_call() -> None:
    log: list[str] = []
    tool = Counting(log)
    assert called(tool, {"a": 1}) == 1
    assert log == ["setup", "call", "teardown"]


def test_a_tool_of_a_sessions_lifetime_is_set_up_once_and_torn_down_at_the_end() -> None:
    log: list[str] = []
    tool = Counting(log, 5)
    tool.lifetime = "session"
    assert [called(tool, {"a": 1}), called(tool, {"a": 1})] == [6, 7]
    assert log == ["setup", "call", "call"]
    tool.tool.close()
    tool.tool.close()
    assert log == ["setup", "call", "call", "teardown"]
    assert tool.declaration.name == "count_from_5"


@pytest.mark.parametrize("lifetime", ["call", "session"])
def test_async_set_up_call_and_tear_down_share_one_event_loop(lifetime: Literal["call", "session"]) -> None:
    log: list[str] = []
    tool = CountingAsync(log)
    tool.lifetime = lifetime
    assert called(tool, {"a": 1}) is True
    assert called(tool, {"a": 1}) is True
    tool.tool.close()
    assert log == ["teardown"] * (2 if lifetime == "call" else 1)


def test_a_tool_that_failed_to_set_up_is_not_torn_down() -> None:
    class Broken(Counting):
        def setup(self, ctx: ToolContext) -> None:
            raise OSError("no server")

    log: list[str] = []
    with pytest.raises(OSError, match="no server"):
        called(Broken(log), {"a": 1})
    assert log == []


def test_an_instance_travels_by_value_with_its_attributes() -> None:
    copy: TypedToolAdapter[Sum] = pickle.loads(cloudpickle.dumps(Counting([], 40).tool))
    assert copy.name == "count_from_40"
    assert copy.run(copy.bind({"a": 2}, None), None) == 42


def test_approval_may_be_a_method_of_the_arguments() -> None:
    class Careful(Counting):
        def requires_approval(self, arguments: dict[str, Any]) -> bool:
            return bool(arguments["a"] > 10)

    tool = as_tool(Careful([]))
    assert tool.declaration.requires_approval == "depends"
    assert [tool.requires_approval_for({"a": a}) for a in (1, 11)] == [False, True]


def test_the_fingerprint_of_a_typed_tool_covers_its_class() -> None:
    def made(answer: str) -> str:
        namespace: dict[str, Any] = {"Sum": Sum, "TypedTool": TypedTool, "__name__": __name__}
        exec(
            f"class One(TypedTool[Sum]):\n def call(self, ctx, input): return self.h()\n def h(self): {answer}",
            namespace,
        )
        return str(namespace["One"]().declaration.fingerprint)

    assert made("return 1") == made("return 1")
    assert made("return 1") != made("return 2")


def test_a_schema_of_ones_own_replaces_the_derived_one_and_its_defaults_hold() -> None:
    class Narrow(Counting):
        parameters_schema = {  # noqa: RUF012
            "type": "object",
            "properties": {"a": {"type": "integer", "maximum": 3, "default": 3}},
        }

    tool = Narrow([])
    assert tool.declaration.parameters_schema["properties"]["a"]["maximum"] == 3
    assert called(tool, {}) == 3


Maker = Callable[..., ToolContext]


def test_the_context_reaches_set_up_and_call(make_context: Maker) -> None:
    class Asking(TypedTool[Sum]):
        def setup(self, ctx: ToolContext) -> None:
            self.agent = ctx.agent_id

        def call(self, context: ToolContext, input: Sum) -> str:
            return f"{self.agent} {context.call_id}"

    assert called(Asking(), {"a": 1}, make_context()) == "agent c1"
