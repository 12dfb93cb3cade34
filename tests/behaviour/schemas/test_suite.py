"""The official test suite of JSON Schema, on the path of a foreign schema and its values."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcell.dispatch.schema_problems import explained
from toolcell.dispatch.validate import Validator
from toolcell_tools import ToolDefinitionError
from toolcell_tools.schemas.untrusted import check_any_schema

DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}


def groups(draft: str) -> Iterator[tuple[str, dict[str, Any]]]:
    files = json.loads((Path(__file__).parent / "suite" / f"{draft}.json").read_text())
    for file, content in files.items():
        for group in content:
            yield file, group


def schema_of(group: dict[str, Any], draft: str) -> Any:
    schema = group["schema"]
    return schema if isinstance(schema, bool) or "$schema" in schema else {"$schema": DRAFTS[draft]} | schema


def outcome(schema: Any, tests: list[dict[str, Any]]) -> list[str]:
    """The outcome of each test: "" if it is as expected."""
    if isinstance(schema, bool):
        schema = {"allOf": [schema]}  # a tool's schema is an object; this one means the same
    try:
        validator = Validator("t", check_any_schema("t", "schema", schema))
    except ToolDefinitionError as refusal:
        return [f"refused: {refusal}"] * len(tests)
    return [_compared(validator, test) for test in tests]


def _compared(validator: Validator, test: dict[str, Any]) -> str:
    problems = validator.problems(test["data"])
    if problems is None:
        return "" if test["valid"] else "passed"
    said = explained(problems)
    return said if test["valid"] or not said.strip() else ""


REMOTE = "not in it"  # by design: nothing is fetched
META_SCHEMA = "unknown kind"  # by design: the drafts are the five that there are

REFERENCES = [
    "remote ref",
    "fragment within remote ref",
    "ref within remote ref",
    "base URI change",
    "base URI change - change folder",
    "base URI change - change folder in subschema",
    "root ref in remote ref",
    "Location-independent identifier in remote ref",
    "retrieved nested refs resolve relative to their URI not $id",
]
DEVIATIONS: dict[str, dict[tuple[str, str], str]] = {
    "draft2020-12": {
        **{("refRemote", group): REMOTE for group in REFERENCES},
        ("refRemote", "anchor within remote ref"): REMOTE,
        ("refRemote", "remote ref with ref to defs"): REMOTE,
        ("refRemote", "remote HTTP ref with different $id"): REMOTE,
        ("refRemote", "remote HTTP ref with different URN $id"): REMOTE,
        ("refRemote", "remote HTTP ref with nested absolute ref"): REMOTE,
        ("refRemote", "$ref to $ref finds detached $anchor"): REMOTE,
        ("dynamicRef", "strict-tree schema, guards against misspelled properties"): REMOTE,
        ("dynamicRef", "tests for implementation dynamic anchor and reference link"): REMOTE,
        ("dynamicRef", "$ref and $dynamicAnchor are independent of order - $defs first"): REMOTE,
        ("dynamicRef", "$ref and $dynamicAnchor are independent of order - $ref first"): REMOTE,
        ("dynamicRef", "$ref to $dynamicRef finds detached $dynamicAnchor"): REMOTE,
        ("optional/cross-draft", "refs to historic drafts are processed as historic drafts"): REMOTE,
        ("vocabulary", "schema that uses custom metaschema with with no validation vocabulary"): META_SCHEMA,
        ("vocabulary", "ignore unrecognized optional vocabulary"): META_SCHEMA,
        ("optional/format-assertion", "schema that uses custom metaschema with format-assertion: false"): META_SCHEMA,
        ("optional/format-assertion", "schema that uses custom metaschema with format-assertion: true"): META_SCHEMA,
    },
    "draft7": {
        **{("refRemote", group): REMOTE for group in REFERENCES},
        ("refRemote", "remote ref with ref to definitions"): REMOTE,
        ("refRemote", "$ref to $ref finds location-independent $id"): REMOTE,
        ("optional/cross-draft", "refs to future drafts are processed as future drafts"): REMOTE,
    },
}
"""Groups of tests whose schema is refused, and the words of the refusal that say why."""

FILES = [(draft, file) for draft in DRAFTS for file in dict.fromkeys(file for file, _group in groups(draft))]


@pytest.mark.parametrize(("draft", "file"), FILES)
def test_each_group_of_a_file_of_the_suite_is_judged_as_it_says(draft: str, file: str) -> None:
    for group in (group for of, group in groups(draft) if of == file):
        tests = group["tests"]
        reason = DEVIATIONS[draft].get((file, group["description"]))
        for test, came_to in zip(tests, outcome(schema_of(group, draft), tests), strict=True):
            told = (group["description"], test["description"])
            if reason is None:
                assert came_to == "", told
            else:
                assert came_to.startswith("refused") and reason in came_to, told


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_table_of_deviations_names_only_groups_of_the_suite(draft: str) -> None:
    assert DEVIATIONS[draft].keys() <= {(file, group["description"]) for file, group in groups(draft)}


def test_the_suite_is_the_whole_one() -> None:
    counts = {draft: sum(len(group["tests"]) for _, group in groups(draft)) for draft in DRAFTS}
    assert counts == {"draft2020-12": 1415, "draft7": 1031}
