"""An import path of a framework's tool: installed, or beside the program."""

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Supervise

from toolcell import UsageError
from toolcell.adapters.foreign import cell_tool, located

pytestmark = pytest.mark.anyio


def call(given: Any, arguments: dict[str, Any]) -> Any:
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
    tool = cell_tool(shout, call, name="shout", description="", parameters=schema)
    async with supervise([tool]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("shout", {"text": "a"})).output == "A"


def test_an_object_is_itself() -> None:
    assert located(call) == (call, False)


def test_a_path_that_leads_nowhere_is_misuse() -> None:
    with pytest.raises(UsageError, match="leads to no tool"):
        located("posixpath:nothing")
