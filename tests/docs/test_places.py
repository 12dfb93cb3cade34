"""`tests/<package>/test_<module>.py` tests `<package>/<module>.py`; other tests lie in `behaviour` or `docs`."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
RUNTIME = ROOT / "executor/toolcell"
HOMES = {
    "sandbox": ROOT / "sandbox/toolcell_sandbox",
    "tools": ROOT / "tools/toolcell_tools",
    "training": RUNTIME / "adapters",  # apart from tests/adapters, as their environment takes 6 GB
}
"""The package of a folder. That of all others is `toolcell`."""
OTHERS = ("escape", "extras", "mutation", "typing")
"""Folders that mirror no package."""
BY_SUBJECT = ("behaviour", "docs")
"""Folders with tests of a subject. A suite with an environment of its own has its own."""
WITHOUT_A_MODULE = {
    "mcp/published/test_published.py": "conformance with servers that others have published",
    "mcp/published/test_sdk.py": "conformance with a server of the official SDK",
}
"""Every other exception, and its reason."""


def mirrors(test: Path) -> bool:
    """Whether the test belongs to a module, by its folders."""
    folders = test.relative_to(TESTS).parts[:-1]
    return not (folders and folders[0] in OTHERS) and set(BY_SUBJECT).isdisjoint(folders)


MODULES = sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py") if mirrors(path))


def is_there(test: str) -> bool:
    """Whether there is the module or the package that these tests are about."""
    first, _, rest = test.partition("/")
    home, inside = (HOMES[first], rest) if first in HOMES else (RUNTIME, test)
    module = (home / inside).with_name(Path(inside).name.removeprefix("test_"))
    return module.is_file() or (module.with_suffix("") / "__init__.py").is_file()


@pytest.mark.parametrize("test", MODULES)
def test_the_tests_of_a_module_are_at_its_place(test: str) -> None:
    assert is_there(test) != (test in WITHOUT_A_MODULE), "move it to its module's place, or to a folder by subject"


def test_every_exception_is_there() -> None:
    assert set(WITHOUT_A_MODULE) <= set(MODULES)


@pytest.mark.parametrize("test", ["pool/test_parts.py", "sandbox/test_pool.py", "test_cells.py", "cells/test_pool.py"])
def test_a_test_without_a_module_is_found(test: str) -> None:
    assert mirrors(TESTS / test) and not is_there(test)


@pytest.mark.parametrize("test", ["pool/test_pool.py", "sandbox/test_kernel.py", "training/test_verl.py"])
def test_a_module_and_a_package_are_found(test: str) -> None:
    assert mirrors(TESTS / test) and is_there(test)
