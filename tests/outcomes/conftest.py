"""Every row runs on asyncio, every fourth on trio too: what ends a call is the pool's, and it knows neither."""

from pathlib import Path

import pytest

EVERY = 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent) and "row" in _parameters(item)]
    on_trio = [item for item in here if _parameters(item).get("anyio_backend") == "trio"]
    left_out = {item for number, item in enumerate(on_trio) if number % EVERY}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _parameters(item: pytest.Item) -> dict[str, object]:
    found: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return found
