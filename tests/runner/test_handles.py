"""The handles in a cell, whose methods are made of the table of operations and of the handles' protocols."""

import asyncio
from typing import Any, cast

import pytest

from toolcell.runner.handles import brokered
from toolcell.runner.link import Link
from toolcell.sessions.broker import table_for
from toolcell_tools.capability import Capability
from toolcell_tools.handles import OPERATIONS, MemoryRecord

ALL = frozenset(Capability)
RECORD = {"id": "1", "text": "t"}


class Asked:
    """A link that notes its requests."""

    def __init__(self, answer: object) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._answer = answer

    def request(self, operation: str, arguments: dict[str, Any]) -> object:
        self.requests.append((operation, arguments))
        return self._answer

    async def arequest(self, operation: str, arguments: dict[str, Any]) -> object:
        return self.request(operation, arguments)


def handles(answer: object = None) -> tuple[Asked, dict[str, Any]]:
    asked = Asked(answer)
    return asked, brokered(cast("Link", asked), ALL)


def test_both_halves_of_an_operation_send_its_arguments_with_the_defaults_of_the_protocol() -> None:
    asked, made = handles([RECORD])
    assert made["memory"].search("q") == [MemoryRecord("1", "t")]
    assert asyncio.run(made["memory"].asearch(query="q", limit=5)) == [MemoryRecord("1", "t")]
    assert asked.requests == [("memory.search", {"query": "q", "limit": 5})] * 2


def test_sequences_and_headers_are_sent_as_the_wire_has_them() -> None:
    asked, made = handles("1")
    made["memory_writer"].store("t", tags=("a", "b"))
    asked_http, made_http = handles({"status": 200, "headers": {}, "body": b""})
    made_http["http"].request("GET", "https://api.example.org/")
    assert asked.requests == [("memory.store", {"text": "t", "kind": "fact", "tags": ["a", "b"]})]
    url = {"method": "GET", "url": "https://api.example.org/"}
    assert asked_http.requests == [("http.request", {**url, "headers": {}, "body": b""})]


@pytest.mark.parametrize(
    ("args", "options"),
    [((), {}), (("q", 1, 2), {}), (("q",), {"query": "q"}), (("q",), {"most": 1})],
)
def test_wrong_arguments_are_a_type_error_that_names_the_right_ones(
    args: tuple[object, ...], options: dict[str, object]
) -> None:
    asked, made = handles()
    with pytest.raises(TypeError, match=r"search\(\) takes query, limit"):
        made["memory"].search(*args, **options)
    assert asked.requests == []


def test_the_broker_carries_out_every_operation_of_the_table() -> None:
    assert table_for(ALL).keys() == OPERATIONS.keys()
