"""For any schema: whatever an export takes that the tool would refuse, and the other way round, the report says so."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcell_tools import ToolDeclaration, exports
from toolcell_tools.exports.canonical import canonical

from .kit import MODES, Mode, accepts, declared, real_tools
from .rules import check
from .schemas import fitting, parameters, tools

QUICK = settings(
    max_examples=int(os.environ.get("TOOLCELL_TEST_EXAMPLES", "20")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
REAL = real_tools()
by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def compare(mode: Mode, declaration: ToolDeclaration, data: st.DataObject, values: int = 6) -> None:
    """Check the export of one tool against the dialect's rules, and both schemas against values drawn from each."""
    export = mode.export([declaration])
    report, name = export.report, declaration.name
    if any(one.action == "refused" for one in report):
        assert name not in export.names.forward
        return
    check(mode.name, mode.tool_of(export))
    original, exported = declaration.parameters_schema, mode.schema_of(export)
    fits_original, fits_exported = accepts(original), accepts(exported)
    drawn, drawn_exported = canonical(original), canonical(exported)
    for _ in range(values):
        value: Any = data.draw(fitting(drawn_exported, drawn_exported.get("$defs", {})))
        if isinstance(value, dict) and fits_exported(value):
            decoded = export.decode(name, value)
            assert fits_original(decoded) or report.loosens(name), (value, decoded, exported)
    for _ in range(values):
        value = data.draw(fitting(drawn, drawn.get("$defs", {})))
        if not isinstance(value, dict) or not fits_original(value):
            continue
        encoded = export.encode(name, value)
        assert fits_exported(encoded) or report.tightens(name), (value, encoded, exported)
        if fits_exported(encoded):
            assert fits_original(export.decode(name, encoded)) or report.loosens(name), (value, encoded, exported)


@by_mode
@QUICK
@given(schema=parameters(), data=st.data())
def test_a_foreign_schema_loses_nothing_that_is_not_reported(
    mode: Mode, schema: dict[str, Any], data: st.DataObject
) -> None:
    compare(mode, declared(schema), data)


@by_mode
@QUICK
@given(declaration=tools(), data=st.data())
def test_a_tool_of_a_function_loses_nothing_that_is_not_reported(
    mode: Mode, declaration: ToolDeclaration, data: st.DataObject
) -> None:
    compare(mode, declaration, data)


@by_mode
@QUICK
@given(declaration=st.sampled_from(REAL), data=st.data())
def test_a_real_tool_loses_nothing_that_is_not_reported(
    mode: Mode, declaration: ToolDeclaration, data: st.DataObject
) -> None:
    compare(mode, declaration, data, values=3)


@QUICK
@given(declaration=tools(), data=st.data())
def test_arguments_survive_strict_mode_and_back(declaration: ToolDeclaration, data: st.DataObject) -> None:
    export = exports.openai_chat([declaration], strict=True)
    schema = declaration.parameters_schema
    value: Any = data.draw(fitting(schema, schema.get("$defs", {})))
    if isinstance(value, dict) and accepts(schema)(value) and not export.report.tightens(declaration.name):
        back = export.decode(declaration.name, export.encode(declaration.name, value))
        assert {name: one for name, one in back.items() if one is not None or name in value} == value
