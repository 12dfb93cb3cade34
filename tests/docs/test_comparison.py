"""The comparison is checkable: our cells link tests that exist, those of others link a source at one commit."""

import re
from collections.abc import Iterator

from .pages import ROOT

TEXT = (ROOT / "docs/comparison.md").read_text()
SOURCES = dict(re.findall(r"^\[([a-z0-9-]+)\]: (\S+)$", TEXT, re.MULTILINE))


def promises() -> Iterator[tuple[str, str, list[str]]]:
    """Each row of the two large tables: the promise, our cell, and the cells of others."""
    for line in TEXT.partition("\n## What others have")[0].splitlines():
        if line.startswith("| ") and not line.startswith("| promise"):
            promise, ours, *others = (cell.strip() for cell in line.strip("|").split("|"))
            yield promise, ours, others


def test_each_of_our_cells_links_a_test() -> None:
    rows = list(promises())
    assert len(rows) == 24
    for promise, ours, _others in rows:
        linked = re.findall(r"\]\(\.\./([^)]+)\)", ours)
        tests = [path for path in linked if re.fullmatch(r"(?:tests|benchmarks)/(?:\w+/)*test_\w+\.py", path)]
        assert tests, promise
        assert all((ROOT / path).is_file() for path in linked), promise


def test_each_cell_of_others_links_a_source_or_says_that_it_is_not_known() -> None:
    for promise, _ours, others in promises():
        for cell in others:
            labels = re.findall(r"\]\[([a-z0-9-]+)\]", cell)
            assert (cell == "not known") != bool(labels), (promise, cell)


def test_each_feature_that_others_have_links_a_source() -> None:
    rows = re.findall(
        r"^\| (?!feature)([A-Z].*?) \| (.*) \|$", TEXT.partition("## What others have")[2].partition("\n## ")[0], re.M
    )
    assert len(rows) > 10
    assert [feature for feature, who in rows if not re.search(r"\]\[[a-z0-9-]+\]", who)] == []


def test_each_source_is_a_file_at_a_commit_and_is_used() -> None:
    assert set(re.findall(r"\]\[([a-z0-9-]+)\]", TEXT)) == set(SOURCES)
    pattern = r"https://github\.com/[\w.-]+/[\w.-]+/blob/[0-9a-f]{40}/\S+"
    assert [label for label, address in SOURCES.items() if not re.fullmatch(pattern, address)] == []
