"""A tool's description and the texts on its parameters, from a docstring in any of three styles."""

import subprocess
import sys
from functools import partial, wraps
from typing import Annotated, Any

import pytest
from pydantic import Field

from toolcell_tools import tool
from toolcell_tools.declaration import Documented, documented


def google(path: str, limit: int = 10) -> str:
    """Read a file.

    It must be text.

    Note:
        Slow for large files.

    Args:
        path: Where it is,
            below the workspace.
        limit (int): How many lines.

    Returns:
        The text.

    Raises:
        OSError: never shown to a model.
    """
    return path * limit


def numpy(path: str, limit: int = 10) -> str:
    """Read a file.

    It must be text.

    Parameters
    ----------
    path : str
        Where it is, below the workspace.
    limit
        How many lines.

    Returns
    -------
    str
        The text.
    """
    return path * limit


def sphinx(path: str, limit: int = 10) -> str:
    """Read a file.

    It must be text.

    :param path: Where it is,
        below the workspace.
    :param int limit: How many lines.
    :returns: The text.
    """
    return path * limit


@pytest.mark.parametrize("fn", [google, numpy, sphinx])
def test_each_style_gives_the_same_parameters(fn: Any) -> None:
    assert documented(fn).parameters == {"path": "Where it is, below the workspace.", "limit": "How many lines."}
    assert tool(fn).declaration.parameters_schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where it is, below the workspace."},
            "limit": {"type": "integer", "description": "How many lines.", "default": 10},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("fn", [numpy, sphinx])
def test_the_description_is_summary_and_body_without_sections(fn: Any) -> None:
    assert tool(fn).declaration.description == documented(fn).description == "Read a file.\n\nIt must be text."


def test_a_note_belongs_to_the_description() -> None:
    assert documented(google).description == "Read a file.\n\nIt must be text.\n\nNote: Slow for large files."


def test_the_docstring_is_that_of_the_function_inside() -> None:
    @wraps(numpy)
    def wrapped(*arguments: Any) -> str:
        return numpy(*arguments)

    assert documented(wrapped) == documented(partial(numpy, limit=5)) == documented(numpy)


def test_without_a_docstring_there_is_no_text() -> None:
    assert documented(lambda: 0) == Documented("", {})


def test_a_text_without_sections_is_as_it_was_written_and_imports_no_parser() -> None:
    code = (
        "import sys\nfrom toolcell_tools.declaration import documented\n"
        "def f(): 'Say: this\\n\\n- and *that*.'\n"
        "assert documented(f) == ('Say: this\\n\\n- and *that*.', {}), documented(f)\n"
        "assert 'griffe' not in sys.modules"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


def test_a_parameter_that_the_function_does_not_have_or_that_has_no_text_is_no_error() -> None:
    def odd(path: str) -> None:
        """Read.

        Args:
            path:
            other: Not there.
        """

    assert "path" not in documented(odd).parameters and documented(odd).description == "Read."


def test_a_text_in_the_annotation_is_the_description_unless_a_field_has_one() -> None:
    def read(
        path: Annotated[str, "Where it is."],
        limit: Annotated[int | None, Field(description="How many."), "Not this."] = None,
        offset: int = 0,
    ) -> None:
        """Read a file.

        Args:
            path: Not this.
            limit: Not this.
            offset: Where to begin.
        """

    properties = tool(read).declaration.parameters_schema["properties"]
    assert [one["description"] for one in properties.values()] == ["Where it is.", "How many.", "Where to begin."]
