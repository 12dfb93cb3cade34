"""The table of what adapters pass on is checkable: each cell is a test of its framework, or "not offered"."""

import ast
import re
from collections.abc import Iterator

import pytest

from .pages import ROOT

PAGE = (ROOT / "docs/framework-features.md").read_text()
FEATURES = [
    "schema of arguments", "schema of results", "their tools' results", "errors", "approve", "deny with words",
    "other arguments", "cancel in flight", "progress", "call id", "parallel calls", "pictures",
]  # fmt: skip
CANCELLED = "test_a_cancelled_run_ends_the_call_in_its_cell"
TESTS: dict[str, list[str | None]] = {
    "pydantic_ai": [
        "test_the_model_sees_schemas_descriptions_and_what_must_run_alone",
        "test_the_model_sees_schemas_descriptions_and_what_must_run_alone",
        "test_a_result_that_is_not_of_its_schema_is_an_error",
        "test_a_failure_is_a_failed_tool_call_and_uses_no_retry",
        "test_what_was_approved_is_what_runs",
        "test_a_denied_call_does_not_run",
        "test_what_was_approved_is_what_runs",
        CANCELLED,
        "test_progress_is_in_the_event_stream",
        "test_the_call_id_is_the_framework_s",
        "test_calls_of_one_turn_run_side_by_side",
        "test_a_picture_is_binary_content",
    ],
    "openai_agents": [
        "test_one_tool_by_its_name_has_the_session_s_schema",
        "test_output_schemas_are_offered_where_the_program_says_so",
        "test_results_are_held_against_the_output_schema",
        "test_an_error_is_text_for_the_model_and_the_run_goes_on",
        "test_an_approved_call_runs",
        "test_a_rejected_call_does_not_run",
        None,
        CANCELLED,
        "test_progress_goes_to_the_program",
        "test_a_tool_runs_in_a_cell",
        "test_calls_of_one_turn_run_side_by_side",
        "test_a_picture_is_a_structured_output",
    ],
    "langchain": [
        "test_one_tool_by_its_name_has_the_session_s_schema",
        None,
        None,
        "test_an_error_is_a_message_of_status_error_and_the_run_goes_on",
        "test_what_was_decided_is_what_happens",
        "test_what_was_decided_is_what_happens",
        "test_what_was_decided_is_what_happens",
        CANCELLED,
        "test_progress_is_in_the_custom_stream_and_in_custom_events",
        "test_the_call_id_is_the_framework_s",
        "test_calls_of_one_turn_run_side_by_side",
        "test_a_picture_is_a_content_block",
    ],
    "deepagents": [
        "langchain:test_one_tool_by_its_name_has_the_session_s_schema",
        None,
        None,
        "test_errors_pictures_and_parallel_calls_are_those_of_langchain_s_tools",
        "test_a_command_that_needs_approval_interrupts_the_agent",
        "test_a_command_that_needs_approval_interrupts_the_agent",
        "langchain:test_what_was_decided_is_what_happens",
        "test_a_cancelled_run_ends_the_command_in_its_cell",
        "test_progress_of_a_tool_is_in_the_custom_stream",
        "test_errors_pictures_and_parallel_calls_are_those_of_langchain_s_tools",
        "test_errors_pictures_and_parallel_calls_are_those_of_langchain_s_tools",
        "test_a_picture_of_the_workspace_is_read_as_a_content_block",
    ],
    "adk": [
        "test_the_model_sees_the_whole_schemas",
        "test_the_model_sees_the_whole_schemas",
        "test_results_of_tools_of_adk_are_held_against_their_schemas",
        "test_an_error_is_an_error_dict",
        "test_a_confirmation_shows_the_preview_and_decides",
        "test_a_confirmation_shows_the_preview_and_decides",
        "test_a_confirmation_shows_the_preview_and_decides",
        CANCELLED,
        "test_progress_is_told_with_adk_s_context",
        "test_an_agent_calls_tools_and_the_model_gets_their_results",
        "test_parallel_calls_run_side_by_side",
        "test_an_image_arrives_as_a_part_of_the_response",
    ],
    "llama_index": [
        "test_the_model_sees_the_whole_schemas",
        None,
        None,
        "test_an_error_is_an_output_that_says_so",
        "test_a_person_is_asked_in_the_event_stream",
        "test_a_person_is_asked_in_the_event_stream",
        "test_a_person_is_asked_in_the_event_stream",
        CANCELLED,
        "test_progress_is_in_the_event_stream",
        "test_an_agent_calls_tools_and_the_model_gets_their_results",
        "test_parallel_calls_run_side_by_side_and_one_may_fail",
        "test_an_image_arrives_as_a_block",
    ],
    "smolagents": [
        "test_the_model_sees_the_whole_schemas",
        "test_output_schemas_are_kept_both_ways",
        "test_output_schemas_are_kept_both_ways",
        "test_an_error_is_the_step_s_error_and_the_agent_goes_on",
        "test_the_supervisor_s_approver_is_asked",
        "test_the_supervisor_s_approver_is_asked",
        "test_the_supervisor_s_approver_is_asked",
        "test_the_close_of_the_session_ends_the_call_of_a_running_agent",
        "test_progress_is_told",
        None,
        "test_parallel_calls_run_side_by_side",
        "test_a_result_that_is_a_picture_is_an_agent_image",
    ],
    "fastmcp": [
        "test_a_client_sees_schemas_annotations_and_meta",
        "test_a_client_sees_schemas_annotations_and_meta",
        "test_results_of_tools_of_fastmcp_are_held_against_their_schemas",
        "test_an_error_is_a_result_that_says_so",
        "test_a_client_s_user_approves_where_the_operator_says_so",
        "test_a_client_s_user_approves_where_the_operator_says_so",
        None,
        "test_a_client_that_gives_up_ends_the_call",
        "test_progress_arrives_in_order",
        "test_a_client_calls_tools_of_the_session",
        "test_parallel_calls_run_side_by_side",
        "test_a_picture_is_an_image",
    ],
}  # fmt: skip
"""The tests of each framework, in the order of `FEATURES`; None where the framework offers nothing."""


def columns() -> dict[str, list[str]]:
    """The cells of the page's tables, by the framework whose test file heads their column."""
    found: dict[str, list[str]] = {}
    heads: list[str] = []
    rows = iter(FEATURES)
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| feature "):
            heads = re.findall(r"\]\(\.\./tests/adapters/test_(\w+)\.py\)", line)
            assert len(heads) == len(cells) - 1
            found |= {head: [] for head in heads}
            rows = iter(FEATURES)
        elif line.startswith("| "):
            assert cells[0] == next(rows)
            for head, cell in zip(heads, cells[1:], strict=True):
                found[head].append(cell)
    return found


def named(framework: str) -> Iterator[tuple[str, str, str | None]]:
    """Each feature, its cell and its test."""
    yield from zip(FEATURES, columns()[framework], TESTS[framework], strict=True)


def test_every_framework_has_a_column() -> None:
    assert columns().keys() == TESTS.keys()


@pytest.mark.parametrize("framework", TESTS)
def test_each_cell_is_a_test_or_says_that_it_is_not_offered(framework: str) -> None:
    for feature, cell, test in named(framework):
        assert (cell == "not offered") is (test is None), feature
        if test is not None:
            file, _, name = test.rpartition(":")
            tree = ast.parse((ROOT / f"tests/adapters/test_{file or framework}.py").read_text())
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            assert name in {each.name for each in ast.walk(tree) if isinstance(each, functions)}, feature
