"""Validating a call of 800 bytes, encoding it and decoding it again, against the libraries that do it, alone."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import jsonschema
import jsonschema_rs
import msgpack
import pytest

from toolcell import tool
from toolcell.dispatch.validate import Valid, Validator
from toolcell.wire.frames import Field, FrameDecoder, Violation, WireLimits, decode_trusted, encode
from toolcell.wire.messages import Call, from_fields, to_fields

from .conftest import Publish
from .interleave import Case, interleave, timed
from .replay import recorded_time
from .report import Figure

pytestmark = pytest.mark.benchmark(timer=recorded_time)

BYTES, LOOPS, SAMPLES = 800, 50, 5


@tool
def submit(path: str, lines: list[str], marks: dict[str, int], share: float, replace: bool = False) -> str:
    """Take arguments of the usual kinds.

    Args:
        path: Where.
        lines: What.
        marks: Numbers by name.
        share: A part of one.
        replace: Whether.
    """
    return path


ARGUMENTS: dict[str, Any] = {
    "path": "src/package/module.py",
    "lines": [f"    line {number} = compute(value, {number})" for number in range(20)],
    "marks": {f"mark {number}": number for number in range(8)},
    "share": 0.25,
    "replace": True,
}
UNSAID = partial(Call, arguments=cast("dict[str, Field]", None))  # for they are encoded already
CALL = Call(1, "main-0123456789ab-1", "submit", {}, ARGUMENTS)


def test_validating_encoding_and_decoding_a_call(publish: Publish) -> None:
    publish(codec, 30)


async def codec(rounds: int, workspace: Path) -> Figure:
    schema = dict(submit.declaration.parameters_schema)
    assert BYTES * 0.95 < len(msgpack.packb(to_fields(CALL))) < BYTES * 1.05
    cases = [
        Case("toolcell", "ours", timed(ours(schema), SAMPLES, LOOPS)),
        Case("jsonschema-rs + msgpack", "floor", timed(floor(schema), SAMPLES, LOOPS)),
        Case("jsonschema.validate alone", "peer", timed(lambda: jsonschema.validate(ARGUMENTS, schema), SAMPLES)),
    ]
    return Figure("codec", f"Validate, encode and decode a call of {BYTES} bytes", await interleave(cases, rounds))


def ours(schema: dict[str, Any]) -> Callable[[], object]:
    """What the supervisor does with arguments before they leave, and the cell when they come."""
    validator, limits = Validator("submit", schema), WireLimits()
    decoder = FrameDecoder(limits, decode_trusted)

    def go() -> None:
        valid = validator.check(ARGUMENTS)
        assert isinstance(valid, Valid)
        assert valid.packed is not None
        call = UNSAID(CALL.seq, CALL.call_id, CALL.tool, CALL.context)
        (frame,) = decoder.feed(b"".join(encode(to_fields(call), limits, last=valid.packed)))
        assert not isinstance(frame, Violation)
        assert from_fields(frame) == CALL

    return go


def floor(schema: dict[str, Any]) -> Callable[[], object]:
    validator = jsonschema_rs.validator_for(schema)
    fields = to_fields(CALL)
    expected = list(fields)

    def go() -> None:
        assert validator.is_valid(ARGUMENTS)
        assert msgpack.unpackb(msgpack.packb(fields)) == expected

    return go
