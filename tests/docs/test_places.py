"""Tests of a module lie where the module does; what goes through the public API lies in `tests/behaviour`."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
HOMES = {"sandbox": ROOT / "sandbox/toolcell_sandbox", "tools": ROOT / "tools/toolcell_tools"}
OTHERS = ("behaviour", "cluster", "docs", "escape", "extras", "mutation", "training", "typing")
"""Folders that mirror no package."""
WITHOUT_A_MODULE = {
    "adapters/test_documents.py": "the programs of the documents that need a framework",
    "adapters/test_examples.py": "the examples that need a framework",
    "dispatch/test_direction.py": "the imports of the whole package",
    "mcp/published/test_published.py": "servers that others have published",
    "mcp/published/test_sdk.py": "a server of the official SDK",
    "pool/test_parts.py": "the small modules of the package: deadlines, capture, outbox, evidence",
    "tools/test_package.py": "the names of the whole package",
    "wire/test_fuzz.py": "any bytes, for all modules of the package",
}
MODULES = sorted(
    str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in OTHERS
)


def place(test: str) -> Path:
    """The module or package that these tests are about."""
    first, _, rest = test.partition("/")
    home, inside = (HOMES[first], rest) if first in HOMES else (ROOT / "executor/toolcell", test)
    return (home / inside).with_name(Path(inside).stem.removeprefix("test_"))


@pytest.mark.parametrize("test", MODULES)
def test_the_tests_of_a_module_are_at_its_place(test: str) -> None:
    there = place(test).is_dir() or place(test).with_suffix(".py").is_file()
    assert there != (test in WITHOUT_A_MODULE)


def test_every_exception_is_there() -> None:
    assert set(WITHOUT_A_MODULE) <= set(MODULES)
