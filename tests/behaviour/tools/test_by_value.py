"""Tools that are shipped by value: what is sent, what is left out, what is refused by name, what is made again."""

import contextvars
import logging
import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from toolcell import UsageError, tool
from toolcell.blocking import Supervisor

BESIDE = """
    import threading
    from os import environ

    LIMIT = 5
    LOCK = threading.Lock()
    LOG = open(__file__)

    class Holder:
        lock = threading.Lock()
        size = 7

    def clamp(value):
        return min(value, LIMIT)

    def locked():
        with LOCK:
            return 1
"""
PROGRAM = """
    import copy
    import logging
    import os
    import sys
    from os import environ, environb
    from posix import environ as first
    from sys import argv, modules, stdin
    from types import MappingProxyType

    import beside
    from toolcell import tool

    FACTOR = 2

    def scale(value):
        return value * FACTOR

    @tool
    def rate(value: int) -> int:
        return scale(beside.clamp(value)) + beside.Holder.size

    @tool
    def log() -> str:
        return beside.LOG.read()

    @tool
    def lock() -> int:
        return beside.locked()

    ALIAS = [os.environ]
    LOG = logging.getLogger("of.the.program")
    NAMESPACE = globals()

    class Holder:
        env = os.environ

    def make(held, kept=os.environ):
        @tool
        def environments() -> list[str]:
            found = [environ, ALIAS[0], Holder.env, beside.environ, held, kept, {"a": copied}["a"], shown]
            secrets = [each.get("PROGRAM_SECRET", "none") for each in found]
            raw = [each.get(b"PROGRAM_SECRET", b"none") for each in (environb, first, data, raw_shown, dict(items))]
            return [get("PROGRAM_SECRET", "none"), *secrets, *(each.decode() for each in raw), environ["HOME"]]
        return environments

    get, copied, data = os.environ.get, copy.copy(os.environ), os.environ._data
    shown, raw_shown, items = MappingProxyType(os.environ), MappingProxyType(data), data.items()
    environments = make(os.environ)

    @tool
    def live() -> list[bool]:
        ours = [modules is sys.modules, argv is sys.argv, stdin is sys.stdin, ERROR[0] is sys.stderr]
        return [*ours, LOG is logging.getLogger("of.the.program"), not LOG.handlers, "pytest" in modules]

    ERROR = [sys.stderr]

    @tool
    def namespace() -> list[str]:
        return list(NAMESPACE)

    @tool
    def late() -> int:
        import later
        return later.LIMIT

    @tool
    def relative() -> int:
        def inner() -> int:
            from later import LIMIT
            return LIMIT
        return inner()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that no cell can import, a module beside it, and a module that it imports later."""
    for name, text in (("beside", BESIDE), ("later", BESIDE), ("program_by_value", PROGRAM)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    import program_by_value  # type: ignore[import-not-found]

    found: ModuleType = program_by_value
    yield found
    found.beside.LOG.close()
    for name in ("beside", "later", "program_by_value"):
        sys.modules.pop(name, None)


HELD = """
    import collections, contextlib, contextvars, ctypes, dataclasses, enum, functools, sqlite3, weakref
    from types import SimpleNamespace
    from typing import Annotated, Generic, NamedTuple, NewType, ParamSpec, TypeVar, TypeVarTuple

    import typing_extensions
    from pydantic import BaseModel, Field, TypeAdapter
    from toolcell import tool

    UserId = NewType("UserId", int)
    UserIds = list[Annotated[UserId, Field(ge=1)]]
    P = ParamSpec("P")
    T = TypeVar("T", bound="Base")
    Ts = TypeVarTuple("Ts")
    Named = typing_extensions.TypeAliasType("Named", dict[str, T], type_params=(T,))

    def double(x):
        return x * 2

    @functools.lru_cache
    def cached(x):
        return double(x)

    @functools.lru_cache(maxsize=3, typed=True)
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @contextlib.contextmanager
    def manager():
        yield 4

    class Base:
        @functools.lru_cache
        def tripled(self, x):
            return x * 3

    class Of(Generic[P]):
        pass

    class Pair(NamedTuple):
        a: int = 1

    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        a: int = 1

    class Level(enum.IntEnum):
        LOW = 1

    class Model(BaseModel):
        a: UserId = UserId(1)

    class Failed(Exception):
        def __init__(self, text, code):
            super().__init__(text, code)
            self.code = code

    FAILED = Failed("no", 3)
    ADAPTER = TypeAdapter(UserIds)
    COUNTS = collections.defaultdict(lambda: 7)

    class Sentinel:
        def __reduce__(self):
            return "SENTINEL"

    class Lost(Exception):
        def __init__(self, text, code):
            super().__init__(text)

    class Made:
        def __new__(cls, a):
            return super().__new__(cls)

    class Odd:
        def __getstate__(self):
            return 3

    SENTINEL, LOST, MADE, ODD = Sentinel(), Lost("no", 3), Made(1), Odd()
    LIBRARY = ctypes.CDLL(None)
    DATABASE = sqlite3.connect(":memory:")
    VARIABLE = contextvars.ContextVar("VARIABLE")
    WEAK = weakref.ref(double)
"""
TRAVELS: dict[str, object] = {
    "cached(3), cached(3), cached.cache_info().hits": [6, 6, 1],
    "fibonacci(30), fibonacci.cache_parameters()['maxsize']": [832040, 3],
    "Base().tripled(2)": 6,
    "UserId(3), UserId.__name__": [3, "UserId"],
    "TypeAdapter(UserIds).validate_python([1])": [1],
    "P.__name__, Of[[int]].__name__": ["P", "Of"],
    "T.__name__, Ts.__name__": ["T", "Ts"],
    "TypeAdapter(Named[int]).validate_python({'a': '1'})": {"a": 1},
    "manager().__enter__()": 4,
    "Pair().a, Frozen().a, Level.LOW, Model().a": [1, 1, 1, 1],
    "FAILED.code, FAILED.args": [3, ["no", 3]],
    "ADAPTER.validate_python(['2'])": [2],
    "COUNTS['a']": 7,
}
if sys.version_info >= (3, 12):
    HELD += """
    type Ids = list[UserId]
    type Tree = dict[str, Tree] | int

    def first[V](values: list[V]) -> V:
        return values[0]
"""
    TRAVELS |= {"TypeAdapter(Ids).validate_python(['4'])": [4], "first([5])": 5}
NEVER_TRAVELS = {
    "SENTINEL": "pickled by its name",
    "LOST": "cannot make a Lost again.*'code'.*super",
    "MADE": "cannot make a Made again",
    "ODD": "the state of a Odd",
    "LIBRARY": "a loaded library",
    "DATABASE": "sqlite3.Connection",
    "VARIABLE": "ContextVar",
    "WEAK": "weakref",
} | ({"Tree": "recursion"} if sys.version_info >= (3, 12) else {})


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that no cell can import, with a tool for each row of the two tables."""
    text = textwrap.dedent(HELD)
    for index, expression in enumerate((*TRAVELS, *NEVER_TRAVELS)):
        text += f"@tool\ndef use_{index}(id: UserId = 1) -> object:\n    return {expression}\n"
    (tmp_path / "held_by_a_script.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import held_by_a_script  # type: ignore[import-not-found]

    yield held_by_a_script
    held_by_a_script.DATABASE.close()
    sys.modules.pop("held_by_a_script")


def test_what_a_script_holds_works_in_a_cell_or_is_refused_when_the_supervisor_starts(
    held: Any, workspace: Path
) -> None:
    tools = [getattr(held, f"use_{index}") for index in range(len(TRAVELS) + len(NEVER_TRAVELS))]
    with Supervisor(tools[: len(TRAVELS)], standby=0) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        for index, (expression, value) in enumerate(TRAVELS.items()):
            assert session.call(f"use_{index}", {"id": 2}).unwrap() == value, expression
    for one, (name, says) in zip(tools[len(TRAVELS) :], NEVER_TRAVELS.items(), strict=True):
        _refused([one], f"'{name}'.*{says}")


def _refused(tools: list[Any], says: str) -> None:
    with pytest.raises(UsageError, match=says), Supervisor(tools, standby=0):
        pass


def test_modules_beside_the_program_travel_without_the_locks_and_files_that_nobody_uses(
    program: Any, workspace: Path
) -> None:
    with Supervisor([program.rate], standby=0) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        assert session.call(program.rate, {"value": 9}).unwrap() == 17


def test_an_environment_that_a_tool_refers_to_is_the_cells_own(
    program: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROGRAM_SECRET", "of the supervisor")
    with Supervisor([program.environments], standby=0) as supervisor:
        for kind in ("main", "worker"):
            session = supervisor.open_session(kind, workspace=workspace)
            assert session.call("environments").unwrap() == ["none"] * 14 + ["/tmp"], kind


def test_streams_modules_and_loggers_that_a_tool_refers_to_are_the_cells_own(program: Any, workspace: Path) -> None:
    program.LOG.addHandler(logging.StreamHandler())
    with Supervisor([program.live], standby=0) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        assert session.call("live").unwrap() == [True] * 6 + [False]


def test_what_is_alive_in_the_program_is_refused_by_the_name_of_what_holds_it() -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs, select.epoll() as poll, tempfile.NamedTemporaryFile() as file:
        held: list[tuple[object, str]] = [
            (ours, "'use' uses 'held', which is an open descriptor"),
            ([ours], "'held': 'Connection' is an open descriptor"),
            (poll, "'use' uses 'held', which is an open descriptor"),
            (file, "'held': '.*' is an open file"),
            (contextvars.ContextVar("number"), "'held': cannot pickle '_contextvars.ContextVar'"),
            ([vars(os)], "'held': 'dict' is the namespace of a module"),
            (logging.StreamHandler(), "'held': 'RLock' is a lock"),
        ]
        for value, says in held:
            _refused([_using(value)], says)


MAPPED = """
import numpy, tempfile
from multiprocessing.shared_memory import ShareableList
from toolcell import UsageError
from toolcell.blocking import Supervisor

LIST = ShareableList([1])
MEMORY = LIST.shm
FILE = numpy.memmap(tempfile.NamedTemporaryFile().name, mode="w+", shape=(1,))

def a() -> int: return MEMORY.size
def b() -> int: return len(LIST)
def c() -> int: return len(FILE)

for tool in (a, b, c):
    try:
        Supervisor([tool]).__enter__()
    except UsageError as error:
        print(str(error).partition(" of this process")[0])
MEMORY.unlink()
"""


def test_memory_that_a_program_has_mapped_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", MAPPED], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "The tool 'a' uses 'MEMORY', which is shared memory",
        "The tool 'b' uses 'LIST', which is shared memory",
        "The tool 'c' uses 'FILE', which is a mapped file",
    ]


def _using(held: object) -> Any:
    def use() -> str:
        """Return the name of the type of what it holds."""
        return type(held).__name__

    return use


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("log", "'log' uses 'beside.LOG', which is an open file of this process.* Make it inside the function"),
        ("lock", "'lock' uses 'LOCK', which is a lock of this process"),
        ("namespace", "'namespace' uses 'NAMESPACE', which is the namespace of a module of this process"),
        ("late", "'late' imports 'later' inside late.*Write `import later` at the top of the file"),
        ("relative", "'relative' imports 'later' inside relative"),
    ],
)
def test_what_a_tool_uses_and_a_cell_cannot_have_is_refused_by_name(program: Any, name: str, says: str) -> None:
    _refused([getattr(program, name)], says)


def test_a_closure_is_refused_for_what_it_uses_only(workspace: Path, tmp_path: Path) -> None:
    held = threading.Lock()
    (tmp_path / "secret").write_text("content")
    with (tmp_path / "secret").open() as file:

        class Box(BaseModel):
            size: int

        def boxed(box: Box) -> int:
            """Return the size. The model of the argument was made beside a lock and a file."""
            return box.size

        def read() -> str:
            return file.read()

        def wait() -> bool:
            return held.acquire()

        _refused([read], "'read' uses 'file', which is an open file")
        _refused([wait], "'wait' uses 'held', which is a lock")
        with Supervisor([boxed], standby=0) as supervisor:
            session = supervisor.open_session("main", workspace=workspace)
            assert session.call("boxed", {"box": {"size": 3}}).unwrap() == 3


def test_what_holds_a_file_inside_is_refused_with_the_name_of_the_whole(tmp_path: Path) -> None:
    class Log:
        def __init__(self) -> None:
            self.file = (tmp_path / "log").open("w+")

    log = Log()

    def write() -> str:
        return str(log.file)

    _refused([write], "'write' cannot be sent to a cell by value: 'log': .*log' is an open file")
    log.file.close()


def test_a_function_or_a_global_that_is_bound_anew_is_the_one_that_runs(program: Any, workspace: Path) -> None:
    def double(value: int) -> int:
        return 2 * value

    with Supervisor([program.rate], standby=0) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)

        def rated() -> object:
            return session.call("rate", {"value": 3}).unwrap()

        assert rated() == 13
        program.FACTOR = 10
        assert rated() == 37
        program.beside.LIMIT = 2
        assert rated() == 27
        program.scale = double
        assert rated() == 11
        program.FACTOR = threading.Lock()
        assert rated() == 11, "nobody uses it any more"
        program.scale = threading.Lock()
        error = session.call("rate", {"value": 3}).error
        assert error is not None
        assert "uses 'scale', which is a lock" in error.message


NOTEBOOK = """
@tool
def answer(number: int = 0) -> int:
    return FIRST + number
"""


def test_a_tool_whose_cell_of_a_notebook_was_run_again_runs_as_it_is_now(workspace: Path) -> None:
    namespace: dict[str, Any] = {"tool": tool, "FIRST": 1, "__name__": "__main__"}
    exec(NOTEBOOK, namespace)
    old = namespace["answer"]
    with Supervisor([old], standby=0) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        assert session.call("answer").unwrap() == 1
        exec(NOTEBOOK.replace("FIRST", "2 * FIRST"), namespace)
        assert session.call("answer").unwrap() == 2
        assert session.call(namespace["answer"]).unwrap() == 2
        namespace["FIRST"] = 5
        assert session.call(old).unwrap() == 10
        exec(NOTEBOOK.replace("= 0", "= 1"), namespace)
        error = session.call("answer").error
        assert error is not None
        assert "'answer' was defined again" in error.message and "Make another Supervisor" in error.message
        with pytest.raises(UsageError, match="was defined again"):
            session.call(namespace["answer"])


def test_a_plain_function_that_was_defined_again_is_the_one_that_runs(workspace: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def answer() -> int:\n    return 1", namespace)
    with Supervisor([namespace["answer"]], standby=0) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        assert session.call("answer").unwrap() == 1
        exec("def answer() -> int:\n    return 2", namespace)
        assert session.call("answer").unwrap() == 2


def test_a_tool_that_was_defined_again_does_not_run_as_it_was(workspace: Path) -> None:
    def make(number: int) -> Callable[[], int]:
        def answer() -> int:
            return number

        return answer

    old, new = tool(make(1)), tool(make(2))
    with Supervisor([old], standby=0) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        assert session.call(old).unwrap() == 1
        with pytest.raises(UsageError, match=r"'answer' was defined again .* Make another Supervisor"):
            session.call(new)
