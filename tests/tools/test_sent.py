"""The schema that is derived for results, against what `encode` makes of them: who keeps to the type keeps to it."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from toolcell_tools import encode_json
from toolcell_tools.schemas.of_types import returned_schema


class Colour(Enum):
    RED = "red"


class Row(TypedDict):
    id: int
    tags: set[str]


@dataclass
class Everything:
    number: float
    flag: bool
    nothing: None
    text: Literal["a", "b"]
    raw: bytes
    price: Decimal
    at: datetime
    day: date
    hour: time
    lasting: timedelta
    where: Path
    id: UUID
    colour: Colour
    pair: tuple[int, str]
    rows: list[Row]
    inner: "Everything | None" = None


class Model(BaseModel):
    raw: bytes
    price: Decimal
    renamed: Annotated[int, Field(serialization_alias="otherName")]
    lasting: timedelta
    part: Everything

    @computed_field
    def double(self) -> int:
        return self.renamed * 2


@pydantic_dataclass
class Renamed:
    renamed: Annotated[int, Field(serialization_alias="otherName")]
    raw: bytes


def everything(**changes: Any) -> Everything:
    parts: dict[str, Any] = {
        "number": 1,
        "flag": True,
        "nothing": None,
        "text": "a",
        "raw": b"\xff\x00",
        "price": Decimal("1E+2"),
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2))),
        "day": date(2026, 1, 2),
        "hour": time(3, 4),
        "lasting": timedelta(days=1, microseconds=5),
        "where": Path("/a"),
        "id": UUID(int=7),
        "colour": Colour.RED,
        "pair": (1, "a"),
        "rows": [{"id": 1, "tags": {"x", "y"}}],
    }
    return Everything(**(parts | changes))


MODEL = Model(raw=b"text", price=Decimal("-5E-9"), renamed=3, lasting=timedelta(1), part=everything(raw=b"text"))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Everything, everything(inner=everything())),
        (Model, MODEL),
        (Renamed, Renamed(renamed=1, raw=b"text")),
        (Row, Row(id=1, tags=set())),
    ],
    ids=["dataclass", "model", "pydantic dataclass", "TypedDict"],
)
def test_a_value_of_the_type_fits_the_schema_of_the_type(type_: type[Any], value: object) -> None:
    schema = returned_schema(type_)
    assert schema is not None
    sent = encode_json(value)
    assert [error.message for error in jsonschema_rs.Draft202012Validator(schema).iter_errors(sent)] == []


@pytest.mark.parametrize("part", [{"number": "1"}, {"raw": 7}, {"pair": (1,)}, {"text": "c"}, {"price": 1.5}])
def test_a_value_of_another_type_does_not(part: dict[str, Any]) -> None:
    schema = returned_schema(Everything)
    assert schema is not None
    assert not jsonschema_rs.Draft202012Validator(schema).is_valid(encode_json(everything(**part)))
