"""tools/SEEDS.md cannot rot: every module and every test that it names exists, and no item is without either."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "tools" / "SEEDS.md").read_text()
HOMES = (ROOT / "tools" / "toolcell_tools", ROOT / "executor" / "toolcell", ROOT / "tools")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and "---" not in line]
TESTS = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)))
MODULES = sorted(set(re.findall(r"`([\w/]+\.py)`", TEXT)))


def test_every_test_that_is_named_exists() -> None:
    for file, name in TESTS:
        assert re.search(rf"^(?:async )?def {name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), (file, name)


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith("tests/")])
def test_every_module_that_is_named_exists_once(module: str) -> None:
    """Under both homes, one name would be ambiguous."""
    assert sum((home / module).is_file() for home in HOMES) == 1


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
    said = re.compile(r"::|[Nn]ot here|not claimed|as above|as Dive|\.ci/check|README")
    items = [row for row in ROWS if not re.match(r"\| (#|item|topic) ", row)]
    assert len(items) > 180
    assert [row for row in items if not said.search(row)] == []
