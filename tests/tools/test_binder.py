"""From validated JSON arguments to keyword arguments."""

from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pydantic
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolcell_tools import ToolContext, tool
from toolcell_tools.signature import plainness


class Mode(Enum):
    FAST = "fast"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    on: date


@dataclass
class Size:
    width: int


def bound(annotation: Any, value: Any) -> Any:
    def takes(value: Any) -> None: ...

    takes.__annotations__["value"] = annotation
    return tool(takes).bind({"value": value}, None)["value"]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (datetime, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),  # noqa: UP017
        (Path, "a/b", Path("a/b")),
        (Mode, "fast", Mode.FAST),
        (Size, {"width": 1}, Size(1)),
        (Literal[1, 2], 1.0, 1),
        (list[Literal[1, "a", True]], [1.0, "a", True], [1, "a", True]),
        (Strict, {"on": "2026-01-02"}, Strict(on=date(2026, 1, 2))),
        (Decimal, "1.5", Decimal("1.5")),
        (UUID, "12345678123456781234567812345678", UUID("12345678123456781234567812345678")),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (bytes, "YWI=", b"ab"),
        (list[int], [1.0], [1]),
        (Annotated[str, AfterValidator(str.upper)], "a", "A"),
        (Size | None, None, None),
    ],
)
def test_rich_types_are_made_from_json(annotation: Any, value: Any, expected: Any) -> None:
    result = bound(annotation, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, 1.0, 1),
        (float, 1, 1.0),
        (int | None, 2.0, 2),
        (float | None, None, None),
        (int | float, 1, 1),
        (bool, True, True),
    ],
)
def test_a_number_is_of_the_kind_that_was_asked_for(annotation: Any, value: Any, expected: Any) -> None:
    result = bound(annotation, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize("annotation", [str, Any, dict, list[str], dict[str, Any], Literal["a"], str | None])
def test_plain_types_are_not_touched(annotation: Any) -> None:
    value = ["a"]
    assert bound(annotation, value) is value


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (Annotated[int, Field(ge=1, le=3, multiple_of=2)], "int"),
        (Annotated[str, Field(min_length=1, pattern="a+", description="x"), "a note"], "json"),
        (Annotated[list[str], Field(max_length=3)], "json"),
        (list[bool | None], "json"),
        (Annotated[int, Field(strict=False)], None),
        (list[int], None),
        (list[Size], None),
        (set[str], None),
        (int | str | None, "int"),
    ],
)
def test_plainness_is_decided_by_the_whole_annotation(annotation: Any, kind: Any) -> None:
    assert plainness(annotation) == kind


def test_absent_optional_arguments_are_left_to_the_function() -> None:
    @tool
    def do(a: int = 1, size: Size | None = None) -> None: ...

    assert do.bind({}, None) == {}


def test_the_arguments_are_not_changed_and_the_context_is_added(ctx: ToolContext) -> None:
    @tool
    def do(n: int, c: ToolContext) -> None: ...

    arguments = {"n": 1.0}
    assert do.bind(arguments, ctx) == {"n": 1, "c": ctx}
    assert arguments == {"n": 1.0}


def test_a_failed_conversion_is_located_at_the_parameter() -> None:
    @tool
    def do(name: str, size: Size) -> None: ...

    with pytest.raises(pydantic.ValidationError) as caught:
        do.bind({"name": "a", "size": {"width": "wide"}}, None)
    assert caught.value.errors()[0]["loc"] == ("size", "width")
