"""The pages cannot rot: links lead somewhere, tables are complete, pages have their size, hosts are nobody's."""

import dataclasses
import importlib
import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

import toolcell as package
from toolcell import ErrorBase, Limits, Profile, Session, ToolError
from toolcell.cli.app import toolcell
from toolcell.mcp import mcp_toolset
from toolcell.rules.toml.schema import McpServerTable, ProfileTable, SupervisorTable
from toolcell_tools import ToolOptions

from .pages import DESIGN, PAGES, ROOT

OTHERS = ("CHANGELOG.md", "tools/SEEDS.md", "benchmarks/RESULTS.md")
TEXTS = {page: (ROOT / page).read_text() for page in (*PAGES, *OTHERS)}
TASKS = [page for page in PAGES if re.fullmatch(r"docs/[a-z-]+\.md", page) and page != "docs/index.md"]
ERRORS: tuple[type[BaseModel], ...] = get_args(get_args(ToolError)[0])


def prose(page: str) -> str:
    """A page without its blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", TEXTS[page], flags=re.MULTILINE | re.DOTALL)


def section(page: str, title: str) -> str:
    _, found, after = TEXTS[page].partition(f"\n## {title}\n")
    assert found, f"{page} has no section {title!r}"
    return re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without the lines of dashes."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(text: str) -> set[str]:
    """What stands in code type in the first cells of the tables."""
    return {name for row in rows(text) for name in re.findall(r"`(\w+)`", row[0])}


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


# -- links ------------------------------------------------------------------------------------------------------------


def test_the_first_page_of_the_site_leads_to_every_task_page() -> None:
    linked = set(re.findall(r"\]\(([a-z-]+\.md)", TEXTS["docs/index.md"]))
    assert {page.removeprefix("docs/") for page in TASKS} <= linked


@pytest.mark.parametrize("page", TEXTS)
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose(page)):
        if "://" in target:
            continue
        place = (ROOT / page).parent / target if target else ROOT / page
        assert place.exists(), f"{page} links to {target}"
        linked = str(place.resolve().relative_to(ROOT))
        assert not anchor or linked not in TEXTS or anchor in anchors(linked), f"{page} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_is_there(page: str) -> None:
    homes = [ROOT, ROOT / "executor/toolcell", ROOT / "sandbox/toolcell_sandbox", ROOT / "tools/toolcell_tools"]
    homes.append(ROOT / "benchmarks")
    named = re.findall(r"`((?:executor|sandbox|tools|tests|examples|benchmarks|\.ci)/[^`\s*]*)`", prose(page))
    named += re.findall(r"`((?:\w+/)*\w+\.py)`", prose(page)) if page in DESIGN else []
    assert [place for place in named if not any((home / place).exists() for home in homes)] == []


def test_every_page_of_the_site_is_in_its_navigation() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r"^ +- (\S+\.md)$", settings, re.MULTILINE))
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert pages <= listed
    assert {page for page in listed - pages if not page.startswith(("design/", "project/"))} == set()


# -- size -------------------------------------------------------------------------------------------------------------


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    assert len(TEXTS["README.md"].splitlines()) < 200
    start = TEXTS["README.md"][:1200]
    assert "pip install . && toolcell demo" in start
    assert "pip install '.[test]' && pytest" in start


@pytest.mark.parametrize("page", TASKS)
def test_a_task_page_begins_with_what_works_and_is_not_long(page: str) -> None:
    assert len(TEXTS[page].splitlines()) <= 300
    if page not in ("docs/comparison.md", "docs/framework-features.md", "docs/names-elsewhere.md"):  # which are tables
        assert "```" in TEXTS[page].partition("\n## ")[0] + section_of_first_block(page)


def section_of_first_block(page: str) -> str:
    return "\n## ".join(TEXTS[page].split("\n## ")[:2])


# -- completeness -----------------------------------------------------------------------------------------------------


def test_every_command_is_named_and_no_other() -> None:
    text = "\n".join(TEXTS[page] for page in PAGES)
    assert set(re.findall(r"toolcell ([a-z]+)`", text)) <= {*toolcell.commands}
    for name in toolcell.commands:
        assert f"`toolcell {name}`" in TEXTS["docs/troubleshooting.md"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_in_the_table_with_its_kind_and_facts(error: type[BaseModel]) -> None:
    kind = error.model_fields["kind"].default
    row = re.search(rf"^\| `{error.__name__}` \| `{kind}` \| (.*)\|$", TEXTS["docs/errors.md"], re.MULTILINE)
    assert row is not None
    for fact in error.model_fields.keys() - {"kind", *ErrorBase.model_fields}:
        assert f"`{fact}`" in row[1]
    assert ("retryable" in row[1]) == error.model_fields["retryable"].default


@pytest.mark.parametrize("field", dataclasses.fields(Limits), ids=lambda field: field.name)
def test_every_limit_is_in_the_table_with_its_defaults(field: "dataclasses.Field[float]") -> None:
    (row,) = (row for row in rows(section("docs/limits.md", "All limits")) if row[0] == f"`{field.name}`")
    usual = getattr(Profile.for_kind("main").limits, field.name)
    worker = getattr(Profile.for_kind("worker").limits, field.name)
    assert row[1] == said(field.name, usual)
    assert row[2] == (said(field.name, worker) if worker != usual else "")


def said(name: str, value: float) -> str:
    if name.endswith("_s"):
        return f"{value:g} s"
    return f"{value // 1024**2} MiB" if name.endswith("_bytes") else f"{value:,}"


def test_every_setting_is_in_a_table() -> None:
    table = names(section("docs/profiles.md", "Settings"))
    assert table == {*ProfileTable.model_fields, *SupervisorTable.model_fields}


def test_every_key_and_argument_for_an_mcp_server_is_in_a_table() -> None:
    assert names(section("docs/mcp-client.md", "In the settings")) == {*McpServerTable.model_fields}
    assert names(section("docs/mcp-client.md", "Options")) | {"http"} == {*inspect.signature(mcp_toolset).parameters}


def test_every_option_of_a_tool_is_in_the_table() -> None:
    assert names(section("docs/tools.md", "Options")) == {*ToolOptions.__annotations__, "success", "validate"}


def test_every_option_of_a_call_has_an_example_and_a_row() -> None:
    text = section("docs/embedding.md", "Calling")
    options = [each for each in inspect.signature(Session.call).parameters.values() if each.kind is each.KEYWORD_ONLY]
    assert options
    for option in options:
        assert f"| `{option.name}` |" in text
        assert re.search(rf"session\.call\(.*{option.name}=", text)


def test_every_public_name_is_in_the_api_reference_once() -> None:
    text = "\n".join(text for page, text in TEXTS.items() if page.startswith("docs/reference/"))
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert sorted(name for name in shown if name.removeprefix("toolcell.") in package.__all__) == sorted(
        f"toolcell.{name}" for name in package.__all__
    )
    for module in (name for name in shown if name.removeprefix("toolcell.") not in package.__all__):
        if module.startswith("toolcell.adapters."):  # it may need a framework
            assert find_spec(module) is not None
        else:
            importlib.import_module(module)


# -- hosts ------------------------------------------------------------------------------------------------------------

SPECIFICATIONS = {"github.com", "semver.org", "keepachangelog.com"}
_HOST = re.compile(r"\b((?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|ai|edu))\b(?!\()")


def test_pages_and_examples_name_no_real_service() -> None:
    files = [*map(Path, TEXTS), *(path.relative_to(ROOT) for path in (ROOT / "examples").iterdir() if path.is_file())]
    found = {(str(file), host) for file in files for host in _HOST.findall((ROOT / file).read_text())}
    real = {each for each in found if not re.search(r"(^|\.)example\.(org|com|net)$", each[1])}
    assert {host for _, host in real} <= SPECIFICATIONS, real
