"""Every test is run by some command, and the quick check takes what it names."""

import tomllib

from tests.selection import HERE, SMOKE

OF_FRAMEWORKS = (
    "adk deepagents deepagents_suite fastmcp langchain llama_index openai_agents pydantic_ai pydantic_ai_workspace "
    "smolagents"
)
ELSEWHERE = {
    "adapters/docs": ".ci/adapters",
    "cluster": "pytest tests/cluster -n 0",
    "extras": "pytest tests/extras",
    "training": ".ci/training",
    "mcp/published": "python -m tests.mcp.published",
    "mcp/server": "pytest tests/mcp/server",
    **{f"adapters/test_{name}.py": ".ci/adapters" for name in OF_FRAMEWORKS.split()},
}
"""Folders and files with tests of what is installed for them alone, and the command that runs them."""


def test_every_test_that_smoke_takes_is_there() -> None:
    for name in SMOKE:
        path, _, test = name.partition("::")
        assert f"def {test}(" in (HERE / path).read_text() if test else (HERE / path).is_file(), name


def test_smoke_takes_something_of_every_folder_of_unit_tests() -> None:
    folders = {path.relative_to(HERE).parts[0] for path in HERE.rglob("test_*.py")}
    taken = {name.partition("/")[0] for name in SMOKE}
    assert taken <= folders
    assert folders - taken == {"cluster", "docs", "extras", "mutation", "training"}


def test_pytest_looks_for_tests_in_every_folder_that_has_some() -> None:
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    paths = {path.removeprefix("tests/") for path in settings["tool"]["pytest"]["ini_options"]["testpaths"]}
    tests = {str(path.relative_to(HERE)) for path in HERE.rglob("test_*.py")}
    found = {test: {path for path in (*paths, *ELSEWHERE) if is_in(test, path)} for test in tests}
    assert [test for test in tests if len(found[test]) != 1] == []
    assert {*paths, *ELSEWHERE} == set().union(*found.values())


def is_in(test: str, path: str) -> bool:
    return test == path or test.startswith(f"{path}/")
