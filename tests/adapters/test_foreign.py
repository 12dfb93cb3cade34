"""A framework's tool in a cell: by value and by import path."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Supervise

from toolcell import Session, ToolDefinitionError, UsageError
from toolcell.adapters.foreign import cell_tool, found, located, read_only_claim

pytestmark = pytest.mark.anyio
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Greeter:
    """A framework's tool."""

    def __init__(self, word: str) -> None:
        self.word = word

    async def invoke(self, arguments: Mapping[str, Any]) -> str:
        return f"{self.word} {arguments['name']}"


async def invoke(tool: Greeter, arguments: dict[str, Any]) -> str:
    return await tool.invoke(arguments)


def join(join: Any, arguments: dict[str, Any]) -> str:
    done: str = join("a", arguments["name"])
    return done


GREET = cell_tool(Greeter("hello"), invoke, name="GreetPeople", description="Greet.", parameters=SCHEMA)
TOOLS = [GREET, cell_tool("os.path:join", join, name="join", description="", parameters=SCHEMA)]


def test_a_claim_to_be_read_only_that_does_not_fit_the_needs_is_dropped_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert read_only_claim("look", True, {"needs": {"read"}}) is True
    assert read_only_claim("look", False, {"needs": {"write"}}) is False
    assert not caplog.messages
    assert read_only_claim("sweep", True, {"needs": iter(["write"]), "uses": ["exec"]}) is None
    assert caplog.messages == ["the tool 'sweep' claims to be read-only, and has exec, write: the claim is dropped"]


async def test_an_object_is_sent_by_value_and_its_name_is_made_valid(main: Session) -> None:
    assert GREET.declaration.name == "greet_people" and GREET.declaration.needs == frozenset()
    assert (await main.call(GREET, {"name": "Ann"})).output == "hello Ann"


async def test_an_import_path_is_imported_in_the_cell(main: Session) -> None:
    assert (await main.call("join", {"name": "b"})).output == "a/b"


async def test_arguments_are_validated_against_the_framework_s_schema(main: Session) -> None:
    error = (await main.call(GREET, {})).error
    assert error is not None and error.kind == "validation"


@pytest.mark.parametrize("path", ["os.path", ":join", "os.path:", "os.path:nothing"])
def test_a_path_that_leads_to_no_tool_is_misuse(path: str) -> None:
    with pytest.raises(UsageError, match=r"import path|leads to no tool"):
        found(path)


def test_a_schema_that_toolcell_does_not_take_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}}
    with pytest.raises(ToolDefinitionError, match="Nothing is fetched"):
        cell_tool(Greeter("a"), invoke, name="greet", description="", parameters=schema)


def shouted(given: Any, arguments: dict[str, Any]) -> Any:
    return given(arguments["text"])


def test_what_is_installed_is_imported_by_the_cell() -> None:
    import posixpath

    assert located("posixpath:basename") == (posixpath.basename, True)


async def test_what_lies_beside_the_program_is_sent_by_value(
    supervise: Supervise, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_program.py").write_text("def shout(text):\n    return text.upper()\n")
    monkeypatch.syspath_prepend(tmp_path)
    shout, by_path = located("beside_the_program:shout")
    assert not by_path
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tool = cell_tool(shout, shouted, name="shout", description="", parameters=schema)
    async with supervise([tool]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("shout", {"text": "a"})).output == "A"


def test_an_object_is_itself() -> None:
    assert located(shouted) == (shouted, False)


def test_a_path_that_leads_nowhere_is_misuse() -> None:
    with pytest.raises(UsageError, match="leads to no tool"):
        located("posixpath:nothing")
