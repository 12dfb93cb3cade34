"""tools/SEEDS.md cannot rot: every test that it names exists, and no item is without one or a reason."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "tools" / "SEEDS.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and "---" not in line]
TESTS = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)))


def collectible(file: Path) -> set[str]:
    """The names of the tests that pytest finds in a file: functions of the module, and methods of its classes."""
    body = ast.parse(file.read_text()).body
    for each in list(body):
        if isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
            body += each.body
    return {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("file", sorted({file for file, _ in TESTS}))
def test_every_test_that_is_named_is_in_its_file(file: str) -> None:
    """tests/docs/test_selection.py checks that pytest looks into the file."""
    named = {name for where, name in TESTS if where == file}
    path = ROOT / "tests" / file
    assert path.name.startswith("test_") and all(name.startswith("test_") for name in named)
    assert named - collectible(path) == set()


@pytest.mark.parametrize(
    ("section", "numbers"),
    {
        "Dive's proposal": range(1, 42),
        "Codex": range(1, 15),
        "Effect": range(1, 27),
        "LlamaIndex": range(1, 12),
        "ADK for Go": range(1, 35),
        "ADR-0004": range(1, 29),
    }.items(),
)
def test_every_number_has_its_row(section: str, numbers: range) -> None:
    table = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found: set[int] = set()
    for cell in re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE):
        for first, last in re.findall(r"(?<![A-Z])\b(\d+)(?:–(\d+))?", cell):
            found.update(range(int(first), int(last or first) + 1))
    assert set(numbers) <= found


def test_every_item_has_a_test_or_says_why_not() -> None:
    items = [row for row in ROWS if not re.match(r"\| (#|item|topic) ", row)]
    assert len(items) >= 215
    assert [row for row in items if not re.search(r"`[\w/]+\.py::\w+`|Not here: \w|Missing: \w", row)] == []
    assert re.findall(r"as above|later issue|not here[,:]", TEXT) == []


def test_every_item_of_the_other_counts_has_its_row() -> None:
    for section, letters in {
        "LlamaIndex": [
            *(f"I{n}" for n in range(1, 7)),
            *(f"AP{n}" for n in range(1, 8)),
            *(f"R{n}" for n in range(1, 9)),
        ],
        "ADK for Go": [*(f"T{n}" for n in range(1, 8)), *(f"P{n}" for n in range(1, 8))],
        "ADR-0004": [f"({letter})" for letter in "abcdefghi"],
    }.items():
        table = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        cells = ", ".join(re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)).split(", ")
        assert [letter for letter in letters if letter not in cells] == []
