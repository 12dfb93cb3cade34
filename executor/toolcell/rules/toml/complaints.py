"""Find the mistakes in a table of settings. A complaint has the key, a similar name and the remedy, never a value."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeGuard, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from toolcell.rules.toml.schema import FileTable
from toolcell.rules.toml.source import Key
from toolcell_sandbox.network import NoNetwork
from toolcell_sandbox.network import from_wire as network_of
from toolcell_sandbox.profile import WORKER_CAPABILITIES

Complaint = tuple[Key, str]


def complaints(table: Mapping[str, object]) -> list[Complaint]:
    """All mistakes in the table of a file."""
    try:
        FileTable.model_validate(table)
    except ValidationError as error:
        return [_complaint(each) for each in error.errors(include_url=False, include_input=False)]
    return []


def _complaint(error: ErrorDetails) -> Complaint:
    place, is_unknown = error["loc"], error["type"] == "extra_forbidden"
    if place[-1:] == ("[key]",) and not is_unknown:  # pydantic's location of a wrong key
        place = place[:-1]
    key = tuple(part for part in place if isinstance(part, str)) if place[1:2] == ("credentials",) else place
    if is_unknown:
        return key, _unknown(str(place[-1]), _model_at(place[:-1]))
    return key, str(error.get("ctx", {}).get("error") or error["msg"])


def _model_at(place: Key) -> type[BaseModel]:
    """The model of the table at this place."""
    found: Any = FileTable
    for part in place:
        found = found.model_fields[str(part)].annotation if _is_model(found) else get_args(found)[-1]
        while not _is_model(found) and get_origin(found) not in (dict, list):
            found = get_args(found)[0]  # of Annotated
    return cast("type[BaseModel]", found)


def _is_model(found: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(found, type) and issubclass(found, BaseModel)


def _unknown(name: str, model: type[BaseModel]) -> str:
    """A similar name, if there is one in this table or one level deeper; otherwise all names."""
    here = [each for each, field in model.model_fields.items() if not field.exclude]
    names: dict[str, str] = {}
    for outer in here:
        inner = model.model_fields[outer].annotation
        names |= {each: f"{outer}.{each}" for each in inner.model_fields} if _is_model(inner) else {}
    names |= {known: known for known in here}
    near = get_close_matches(name, names, n=1)
    return f"unknown. Did you mean {names[near[0]]}?" if near else f"unknown. Known: {', '.join(here)}."


def wider_than_a_worker(table: Mapping[str, Any]) -> Iterator[Complaint]:
    """The grants of a Worker's profile that have no effect. A Worker has at most read, memory.read and web."""
    remedy = "Nothing can widen a Worker: leave it out, or use a Branch for this."
    for index, name in enumerate(table.get("grants", ())):
        if name not in WORKER_CAPABILITIES:
            yield ("grants", index), f"a Worker cannot be granted {name!r}. {remedy}"
    if table.get("writable"):
        yield ("writable",), f"a Worker writes nowhere. {remedy}"
    if table.get("http"):
        yield ("http",), f"no requests are made for a Worker. {remedy}"
    if "network" in table and network_of(table["network"]) != NoNetwork():
        yield ("network",), f"a Worker reaches no network. {remedy}"
