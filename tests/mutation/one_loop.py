"""A plugin for pytest: leaves out the tests on trio. The modules under mutation are the same on either event loop."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if loop_of(item) != "trio"]


def loop_of(item: pytest.Item) -> object:
    parameters: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return parameters.get("anyio_backend")
