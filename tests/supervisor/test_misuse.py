"""What a program can get wrong in the arguments of the public API is a UsageError that says what to do instead."""

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from toolcell import (
    BrokeredHttp,
    ConfigError,
    Credential,
    Profile,
    Supervisor,
    UsageError,
    base_tools,
    blocking,
    load_config,
    module_toolset,
    tool,
)
from toolcell.blocking import Session

Make = Callable[..., object]
MAIN = Profile.for_kind("main")
OPENED = [
    ({"kind": "mian"}, "no session kind 'mian'. Did you mean 'main'?"),
    ({"kind": 3}, "no session kind 3. There are: 'main', 'branch', 'worker'."),
    ({"workspace": None}, "workspace is not a path: None. Pass the path of a directory."),
    ({"workspace": "a\0b"}, "workspace is not a path"),
    ({"agent_id": 3}, "agent_id is not a text: 3. Pass a str"),
    ({"session_id": 3}, "session_id is not a text: 3"),
    ({"channel": 3}, "channel is not a Channel: 3. Pass an object with send()."),
    ({"memory": 3}, "memory is not a MemoryStore: 3"),
    ({"web": 3}, "web is not a WebClient: 3"),
    ({"http": 3}, "http is not a HttpClient: 3"),
    ({"config": 3}, "config is not a mapping of names: 3"),
    ({"config": {3: 4}}, "config is not a mapping of names"),
    ({"profile": "main"}, "profile is not a Profile: 'main'"),
]
CALLED = [
    ({"timeout": "3"}, "timeout is not above 0: '3'. Pass a number of seconds, or None for the tool's own."),
    ({"timeout": True}, "timeout is not above 0: True"),
    ({"timeout": float("nan")}, "timeout is not above 0: nan"),
    ({"call_id": 3}, "call_id is not a text: 3"),
    ({"idempotency_key": []}, "idempotency_key is not a text"),
    ({"repair": 3}, "repair is not a function: 3"),
    ({"on_progress": 3}, "on_progress is not a function: 3"),
    ({"on_output": 3}, "on_output is not a function: 3"),
    ({"name": None}, "None is neither a tool nor the name of one"),
]
MADE = [
    ({"tools": 3}, r"tools is not a list: 3. Write tools=[my_tool]."),
    ({"tools": [3]}, "3 is not a tool and not a function"),
    ({"toolsets": 3}, "toolsets is not a list: 3"),
    ({"profiles": 3}, "profiles is not a mapping: 3"),
    ({"profiles": {"worker": 3}}, "profiles['worker'] is not a Profile: 3. Pass Profile.for_kind('main').replace(…)."),
    ({"profiles": {"wroker": MAIN}}, "no session kind 'wroker'. Did you mean 'worker'?"),
    ({"approval_timeout_s": "3"}, "approval_timeout_s is not above 0: '3'. Pass a number of seconds."),
    ({"model_bytes": "x"}, "model_bytes is not a whole number above 0: 'x'"),
    ({"max_cells": "4"}, "max_cells is not a whole number above 0: '4'"),
    ({"max_cells": 1.5}, "max_cells is not a whole number above 0: 1.5"),
    ({"allow_missing": "landlock"}, "allow_missing is not a list: 'landlock'. Write allow_missing={'landlock_scope'}."),
    ({"allow_missing": {"landlok"}}, "allow_missing names no mechanism: 'landlok'. Did you mean 'landlock'?"),
    ({"config": {"a": 1}}, "config is not a Config: {'a': 1}. Pass load_config(…)."),
    ({"http": 3}, "http is not a HttpClient: 3"),
    ({"journal": 3}, "journal is not a Journal: 3. Pass an object with write()."),
    ({"resolve": 3}, "resolve is not a function: 3"),
    ({"quarantine": 3}, "quarantine is not a path: 3"),
]
OTHERS: list[tuple[Make, str]] = [
    (functools.partial(tool, 3), "3 is not a function"),
    (functools.partial(cast("Make", module_toolset), 3), "3 is not the dotted name of a module"),
    (functools.partial(module_toolset, "json", allow={"reed"}), "no capability 'reed'. Did you mean 'read'?"),
    (Credential, "has one of value, value_env and value_file. Pass one of them."),
    (functools.partial(BrokeredHttp, timeout_s=0), "timeout_s must be above zero"),
]


def _id(value: object) -> str | None:
    """What an argument is called; the same in every process, as the order of a set in a Profile is not."""
    return "-".join(cast("dict[str, object]", value)) if isinstance(value, dict) else None


def _refused(says: str) -> Any:
    return pytest.raises(UsageError, match=re.escape(says))


@pytest.fixture(scope="module")
def supervisor() -> Iterator[blocking.Supervisor]:
    with blocking.Supervisor(base_tools(), standby=0) as supervisor:
        yield supervisor


@pytest.fixture(scope="module")
def session(supervisor: blocking.Supervisor, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return supervisor.open_session("main", workspace=tmp_path_factory.mktemp("workspace"))


@pytest.mark.parametrize(("wrong", "says"), MADE, ids=_id)
def test_a_supervisor_cannot_be_made_of_it(wrong: dict[str, Any], says: str) -> None:
    with _refused(says):
        Supervisor(**wrong)


@pytest.mark.parametrize(("wrong", "says"), OPENED, ids=_id)
def test_a_session_cannot_be_opened_with_it(
    supervisor: blocking.Supervisor, tmp_path: Path, wrong: dict[str, Any], says: str
) -> None:
    with _refused(says):
        supervisor.open_session(**{"kind": "main", "workspace": tmp_path, **wrong})


@pytest.mark.parametrize(("wrong", "says"), [pair for pair in OPENED if pair[0] != {"workspace": None}], ids=_id)
def test_a_child_cannot_be_opened_with_it(session: Session, wrong: dict[str, Any], says: str) -> None:
    with _refused(says):
        session.open_child(**{"kind": "worker", **wrong})


@pytest.mark.parametrize(("wrong", "says"), CALLED, ids=_id)
def test_a_call_is_refused_with_it(session: Session, wrong: dict[str, Any], says: str) -> None:
    with _refused(says):
        session.call(**{"name": "read", "args": {"path": "x"}, **wrong})


@pytest.mark.parametrize(("make", "says"), OTHERS, ids=[says[:30] for _make, says in OTHERS])
def test_an_object_of_the_api_cannot_be_made_of_it(make: Make, says: str) -> None:
    with _refused(says):
        make()


def test_settings_cannot_be_loaded_from_what_is_no_path() -> None:
    with pytest.raises(ConfigError, match=r"file: is not a path: 3. Pass the path of one"):
        load_config(file=3)  # type: ignore[arg-type]


def test_a_blocking_session_says_that_its_supervisor_has_ended(tmp_path: Path) -> None:
    with blocking.Supervisor(base_tools(), standby=0) as supervisor:
        session = supervisor.open_session("main", workspace=tmp_path)
    for ask in (
        functools.partial(session.call, "read"),
        session.tools,
        functools.partial(session.open_child, "worker"),
    ):
        with _refused("The supervisor is not running"):
            ask()
    session.close()  # it has been closed with its supervisor
