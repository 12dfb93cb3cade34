"""Tools by value: what pickling them leaves as it was."""

import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import cast

import cloudpickle
import pytest
from cloudpickle.cloudpickle import list_registry_pickle_by_value

from toolcell import Capability, Tool, ToolContext, tool
from toolcell.sessions.shipping import shipped


@tool
def answer() -> int:
    """Answer."""
    return 42


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module that no cell could import."""
    made = sys.modules["a_users_own"] = ModuleType("a_users_own")
    made.__file__ = "/home/user/a_users_own.py"
    yield made
    del sys.modules["a_users_own"]


def test_supervisors_of_several_threads_ship_tools_at_the_same_time(module: ModuleType) -> None:
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            shipments = list(threads.map(shipped, [answer] * 100))
    finally:
        sys.setswitchinterval(switch)
    assert all(each["how"] == "pickle" for each, _use in shipments)
    assert "a_users_own" not in list_registry_pickle_by_value()


def test_modules_that_the_program_has_pickled_by_value_stay_so(module: ModuleType) -> None:
    cloudpickle.register_pickle_by_value(module)
    try:
        shipped(answer)
        assert "a_users_own" in list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_tool_travels_without_its_caches_and_keeps_its_fingerprint() -> None:
    factor = 3

    @tool(needs={Capability.READ})
    def times(ctx: ToolContext, n: int) -> int:
        """Multiply."""
        return n * factor

    times.prepare()
    copy: Tool[..., int] = pickle.loads(cast("bytes", shipped(times)[0]["where"]))
    assert copy(ctx=None, n=2) == 6
    assert copy.bind({"n": 4.0}, None) == {"n": 4, "ctx": None}
    assert copy.fn.__code__.co_filename == __file__
    assert copy.declaration.model_dump() == times.declaration.model_dump()


def test_a_module_that_is_under_another_name_than_its_own_keeps_no_tool_from_being_sent(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "an_alias", ModuleType("its_own_name"))
    assert shipped(answer)[0]["how"] == "pickle"
    monkeypatch.setitem(sys.modules, "an_alias", module)
    assert shipped(answer)[0]["how"] == "pickle" and "a_users_own" not in list_registry_pickle_by_value()
