"""Wrong arguments of the public API raise UsageError, with the remedy."""

import functools
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, cast

import pytest

from toolcell import (
    BrokeredHttp,
    ConfigError,
    Credential,
    HostNetwork,
    Limits,
    NoNetwork,
    Profile,
    ProxyNetwork,
    PublicWeb,
    RecentJournal,
    SQLiteMemory,
    Supervisor,
    TierPolicy,
    UsageError,
    base_tools,
    blocking,
    load_config,
    module_toolset,
    tool,
)
from toolcell.blocking import Session

Make = Callable[..., object]


class Forgetful:
    """A journal whose `write` is async, so no record is ever written."""

    async def write(self, record: object) -> None:
        pass


MAIN = Profile.for_kind("main")
OPENED = [
    ({"kind": "mian"}, "no session kind 'mian'. Did you mean 'main'?"),
    ({"kind": 3}, "no session kind 3. There are: 'main', 'branch', 'worker'."),
    ({"workspace": None}, "workspace is not a path: None. Pass the path of a directory."),
    ({"workspace": "a\0b"}, "workspace is not a path"),
    ({"workspace": ""}, "workspace is empty. Pass the path of a directory, or '.' for the current one."),
    ({"workspace": "~/x"}, "workspace begins with '~', which is not expanded here: '~/x'. Pass os.path.expanduser("),
    ({"workspace": Path("~ada")}, "or './~ada' for a directory of that name."),
    ({"agent_id": 3}, "agent_id is not a text: 3. Pass a str"),
    ({"session_id": 3}, "session_id is not a text: 3"),
    ({"channel": 3}, "channel is not a Channel: 3. Pass an object with send()."),
    ({"memory": 3}, "memory is not a MemoryStore: 3"),
    ({"web": 3}, "web is not a WebClient: 3"),
    ({"http": 3}, "http is not a HttpClient: 3"),
    ({"config": 3}, "config is not a mapping of names: 3"),
    ({"config": {3: 4}}, "config is not a mapping of names"),
    ({"profile": "main"}, "profile is not a Profile: 'main'"),
    ({"profil": MAIN}, " takes no 'profil'. Did you mean 'profile'?"),
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
    ({"time_out": 3}, "Session.call takes no 'time_out'. Did you mean 'timeout'?"),
]
MADE = [
    ({"tools": 3}, r"tools is not a list: 3. Write tools=[my_tool]."),
    ({"tools": [3]}, "3 is not a tool and not a function"),
    ({"tools": None}, r"tools is not a list: None. Write tools=[my_tool]."),
    ({"toolsets": 3}, "toolsets is not a list: 3"),
    ({"toolsets": None}, "toolsets is not a list: None"),
    ({"hooks": None}, "hooks is no list but None"),
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
    ({"journal": RecentJournal}, "journal is the class RecentJournal. Pass an instance: RecentJournal(…)."),
    ({"journal": Forgetful()}, "is async or a generator. Write a plain def"),
    ({"approver": 3}, "approver is not an Approver: 3. Pass an object with approve()."),
    ({"standby": 2}, "standby is not 0 or 1: 2"),
    ({"approvr": None}, "Supervisor takes no 'approvr'. Did you mean 'approver'?"),
    ({"zzz": None}, "Supervisor takes no 'zzz'. There are: tools, toolsets, "),
    ({"quarantine": 3}, "quarantine is not a path: 3"),
]
OTHERS: list[tuple[Make, str]] = [
    (functools.partial(tool, 3), "3 is not a function"),
    (functools.partial(cast("Make", module_toolset), 3), "3 is not the dotted name of a module"),
    (functools.partial(module_toolset, "json", allow={"reed"}), "no capability 'reed'. Did you mean 'read'?"),
    (functools.partial(cast("Make", Limits), wal_s=3), "Limits takes no 'wal_s'. Did you mean 'wall_s'?"),
    (functools.partial(Limits, wall_s=-1), "Limits.wall_s is not positive and finite: -1. Pass a value above zero."),
    (functools.partial(cast("Make", Limits), 3), "Limits: too many positional arguments. It takes: wall_s, "),
    (functools.partial(cast("Make", Limits().narrow), 3), "Limits.narrow was given no Limits: 3"),
    (functools.partial(Limits().replace, wal_s=3), "Limits takes no 'wal_s'. Did you mean 'wall_s'?"),
    (functools.partial(Profile, grants=frozenset({"reed"})), "no such capability: 'reed'"),
    (functools.partial(cast("Make", Profile), grants=["read"]), "Profile.grants cannot be ['read']. Pass a set"),
    (functools.partial(cast("Make", Profile), readable="/x"), "Profile.readable is not a list of texts: '/x'"),
    (functools.partial(cast("Make", Profile), readable=[Path("/x")]), "which is not a text. Pass str(…) of it."),
    (functools.partial(cast("Make", Profile), env={"A": 3}), "Profile.env holds 'A'"),
    (functools.partial(MAIN.replace, writeable=()), "Profile takes no 'writeable'. Did you mean 'writable'?"),
    (functools.partial(cast("Make", MAIN.narrow), limit=3), "Profile.narrow takes no 'limit'. Did you mean 'limits'?"),
    (functools.partial(cast("Make", MAIN.narrow), grants=3), "Profile.narrow: grants is not a list of texts: 3"),
    (functools.partial(MAIN.narrow, writable=["/x"]), "a path that the profile does not cover. Leave it out."),
    (functools.partial(MAIN.lifting, ".vscod"), "Did you mean '/.vscode'?"),
    (functools.partial(Profile.for_kind, "mian"), "no profile for this session kind: 'mian'. Use 'main'"),
    (functools.partial(ProxyNetwork, allow=["https://x"]), "has an entry that is a URL: 'https://x'. Write it like"),
    (functools.partial(cast("Make", ProxyNetwork), alow=[]), "ProxyNetwork takes no 'alow'. Did you mean 'allow'?"),
    (Credential, "has exactly one of value, value_env and value_file. Pass one of them."),
    (functools.partial(BrokeredHttp, timeout_s=0), "timeout_s is not above 0: 0"),
]


def _id(value: object) -> str | None:
    """The name of an argument. It is the same in every process, unlike the order of a set in a Profile."""
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


MAKERS: list[tuple[Make, dict[str, Any]]] = [
    (Supervisor, {}),
    (blocking.Supervisor, {}),
    (cast("Make", Profile), {}),
    (cast("Make", Limits), {}),
    (cast("Make", NoNetwork), {}),
    (cast("Make", HostNetwork), {}),
    (cast("Make", ProxyNetwork), {}),
]


def _each_wrong(make: Make, good: dict[str, Any], unchecked: frozenset[str] = frozenset()) -> Iterator[dict[str, Any]]:
    """For each parameter, an object of a wrong type, and the misspelt name."""
    yield {**good, "zzz": None}
    for name in inspect.signature(make).parameters:
        if name not in {"self", "others", "options", *unchecked}:
            yield {**good, name: object()}
            yield {**good, f"{name}z": None}


@pytest.mark.parametrize(("make", "good"), MAKERS, ids=[make.__qualname__ for make, _good in MAKERS])
def test_each_argument_of_a_constructor_is_checked(make: Make, good: dict[str, Any]) -> None:
    for wrong in _each_wrong(make, good):
        with pytest.raises(UsageError) as caught:
            make(**wrong)
        assert isinstance(caught.value, ValueError) or make in (Supervisor, blocking.Supervisor)


@pytest.mark.parametrize("make", [RecentJournal, SQLiteMemory, TierPolicy, PublicWeb, BrokeredHttp, Credential])
def test_each_argument_of_what_a_supervisor_is_given_is_checked(make: Make) -> None:
    for name in inspect.signature(make).parameters:
        with pytest.raises(UsageError):
            make(**{name: object()})


def test_each_argument_of_a_method_is_checked(
    supervisor: blocking.Supervisor, session: Session, tmp_path: Path
) -> None:
    methods: list[tuple[Make, dict[str, Any], frozenset[str]]] = [
        (supervisor.open_session, {"kind": "main", "workspace": tmp_path}, frozenset()),
        (session.open_child, {"kind": "worker"}, frozenset()),
        (session.call, {"name": "read"}, frozenset({"args"})),  # which a model wrote: a result says what is wrong
        (session.close, {}, frozenset()),
    ]
    for method, good, unchecked in methods:
        for wrong in _each_wrong(method, good, unchecked):
            with pytest.raises(UsageError):
                method(**wrong)
    error = session.call("read", cast("Any", [3])).error
    assert error is not None and error.kind == "validation", error


def test_what_the_types_say_is_what_the_wrapped_functions_say() -> None:
    assert inspect.iscoroutinefunction(Supervisor.open_session)
    assert list(inspect.signature(Limits).parameters)[:2] == ["wall_s", "cpu_s"]


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


@pytest.mark.anyio
async def test_each_supervisor_names_the_other_where_it_is_entered_as_that_one() -> None:
    with _refused("event loop, use toolcell.blocking.Supervisor"), cast("Any", Supervisor()):
        pass
    with _refused("needs `with Supervisor(…) as supervisor:`. In an async function, use toolcell.Supervisor"):
        async with cast("Any", blocking.Supervisor()):
            pass


def test_what_cannot_be_sent_to_another_process_says_why_and_what_to_do_instead(session: Session) -> None:
    with _refused("A Session cannot be copied or sent to another process: its cells belong to the process that star"):
        ForkingPickler.dumps(session)  # as multiprocessing does
    for one in (session._inner, Supervisor(), blocking.Supervisor()):
        with _refused("cannot be copied or sent to another process"):
            pickle.dumps(one)
