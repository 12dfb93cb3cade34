"""Integers of more than 64 bits: judged exactly, and what is valid reaches the tool as it was given."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from toolcell import Capability, SessionKind, ToolContext, dynamic_tool, host_tool, tool
from toolcell.blocking import Supervisor
from toolcell.dispatch.validate import Validator
from toolcell.wire.frames import Violation, WireLimits, decode, packed_wide
from toolcell_tools.schemas.untrusted import check_any_schema

NEAR = st.builds(
    lambda power, beside, sign: sign * (2**power + beside),
    st.sampled_from([52, 53, 63, 64, 65, 70, 128, 1_022]),
    st.integers(-2, 2),
    st.sampled_from([1, -1]),
)
NUMBERS = NEAR | st.integers(-5, 5) | st.sampled_from([2.0**53, 2.0**64, 2.0**65, -(2.0**70), 0.5, 1e300])
JUDGES: dict[str, Any] = {
    "type": lambda value, limit: float(value).is_integer(),
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "multipleOf": lambda value, limit: (Fraction(value) / Fraction(limit)).denominator == 1,
    "const": lambda value, limit: value == limit,
    "enum": lambda value, limit: value == limit,
}


@given(keyword=st.sampled_from([*JUDGES]), limit=NUMBERS, value=NUMBERS)
def test_a_number_of_any_size_is_judged_exactly(keyword: str, limit: Any, value: Any) -> None:
    said = {"type": "integer", "enum": ["x", limit], "multipleOf": abs(limit) or 1}.get(keyword, limit)
    limit = said if keyword == "multipleOf" else limit
    validator = Validator("t", check_any_schema("t", "schema", {"properties": {"n": {keyword: said}}}))
    valid = not hasattr(validator.check({"n": value}), "message")
    assert valid == JUDGES[keyword](value, limit)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**70, "multipleOf": 2}}}
dynamic = dynamic_tool("dynamic", parameters=SCHEMA, handler=lambda arguments: str(arguments["n"]))


@tool(requires_approval=True)
def approved(n: int) -> str:
    """Add one."""
    return str(n)


@tool
def inner(n: list[int], limit: Annotated[int, Field(le=2**70)] = 0) -> str:
    """Show both."""
    return f"{n[0]} {limit}"


@tool
def real(x: float) -> str:
    """Show a float."""
    return repr(x)


@tool(needs={Capability.READ}, lifetime="session")
def kept(ctx: ToolContext, n: int) -> str:
    """Show a number in a kept process."""
    return str(n)


@host_tool
def hosted(n: int) -> str:
    """Show a number in the supervisor's process."""
    return str(n)


class Yes:
    """An approver that approves."""

    async def approve(self, request: Any) -> Any:
        from toolcell import Approved

        assert request.arguments["n"] == 2**65
        return Approved()


def test_a_valid_integer_of_more_than_64_bits_reaches_every_kind_of_tool(workspace: Path, tmp_path: Path) -> None:
    tools = [dynamic, approved, inner, real, kept, hosted]
    with Supervisor(tools, approver=Yes(), state=tmp_path / "state") as supervisor:
        session = supervisor.open_session(SessionKind.MAIN, workspace=workspace)
        for name, arguments, shown in (
            ("dynamic", {"n": 2**65}, str(2**65)),
            ("approved", {"n": 2**65}, str(2**65)),
            ("inner", {"n": [-(2**63) - 1], "limit": 2**70}, f"{-(2**63) - 1} {2**70}"),
            ("real", {"x": 2**1_022}, repr(float(2**1_022))),
            ("kept", {"n": 2**65}, str(2**65)),
            ("hosted", {"n": 2**65}, str(2**65)),
        ):
            for _ in range(2):  # the second result is the first one's: same key, same arguments
                assert session.call(name, arguments, idempotency_key=f"key of {name}").unwrap() == shown, name
        for n, says in ((2**71, "greater than the maximum"), (2**65 + 1, "not a multiple"), (2**1_023, "1,023 bits")):
            error = session.call("dynamic", {"n": n}).error
            assert error is not None and error.kind == "validation" and says in error.message


@pytest.mark.parametrize("value", [2**64, [-(2**80)]])
def test_no_frame_of_a_cell_may_have_such_an_integer(value: Any) -> None:
    body = bytes([0x91]) + packed_wide(value)
    assert isinstance(decode(body, WireLimits()), Violation)
