"""Tools as users write them: functions of this file, shipped by value, kept over calls, printing, drawing random
numbers.
"""

import ctypes
import math
import multiprocessing
import os
import random
import secrets
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.helpers import PATIENCE_S

from toolcell import (
    Capability,
    Crashed,
    Session,
    Supervisor,
    Timeout,
    Tool,
    ToolContext,
    TypedTool,
    UsageError,
    tool,
)
from toolcell.supervisor import runtime_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
ANSWER = 42
TABLE = {"one": 1}
_state: dict[str, int] = {}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: float
    y: float


def helper(value: float) -> float:
    return math.sqrt(value) + ANSWER


def uses_its_module(value: float) -> list[Any]:
    """Use a helper, constants and an import of this module."""
    return [helper(value), TABLE, math.floor(value)]


def takes_types_of_its_module(point: Point, colour: Colour = Colour.RED) -> Point:
    """Take and return a dataclass of this module."""
    assert isinstance(point, Point) and isinstance(colour, Colour)
    return Point(point.y, point.x)


def with_a_wrapper(function: Callable[[int], int]) -> Callable[[int], int]:
    @wraps(function)
    def wrapped(value: int) -> int:
        return function(value) * 2

    return wrapped


@with_a_wrapper
def wrapped(value: int) -> int:
    """Triple the value. The wrapper doubles the result."""
    return value * 3


class Line(BaseModel):
    text: str


class Typist(TypedTool[Line]):
    """Write a line to a long-lived program, and read its answer."""

    name = "write_stdin"
    lifetime = "session"
    needs = (Capability.EXEC,)

    def setup(self, ctx: ToolContext) -> None:
        counting = 'n=0; while read line; do n=$((n+1)); echo "$n: $line"; done'
        self.program = subprocess.Popen(
            ["/bin/sh", "-c", counting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def call(self, ctx: ToolContext, input: Line) -> str:
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write(input.text + "\n")
        return self.program.stdout.readline()

    def teardown(self) -> None:
        self.program.kill()
        self.program.wait()


class Shelf:
    """An object with a method that becomes a tool."""

    def __init__(self, books: list[str]) -> None:
        self.books = books

    def find(self, word: str) -> list[str]:
        """Return the books that have the word in their title."""
        return [book for book in self.books if word in book]


def adder(amount: int) -> Callable[[int], int]:
    def add(value: int) -> int:
        """Add."""
        return value + amount

    return add


def draw() -> dict[str, str]:
    """Return values that must be random."""
    return {
        "random": str(random.random()),
        "own Random": str(random.Random().random()),
        "uuid4": str(uuid.uuid4()),
        "uuid1": str(uuid.uuid1()),
        "urandom": os.urandom(16).hex(),
        "secrets": secrets.token_hex(16),
        "tempfile": os.path.basename(tempfile.mktemp()),
        "SystemRandom": str(random.SystemRandom().random()),
    }


def speak(word: str, times: int = 1) -> str:
    """Print from Python and from C, to both streams."""
    libc = ctypes.CDLL(None)
    for _ in range(times):
        print(f"python out {word}")
        print(f"python err {word}", file=sys.stderr)
        libc.printf(b"c out %s\n", word.encode())
        libc.dprintf(2, b"c err %s\n", word.encode())
    return word


def speak_through_a_child(word: str) -> str:
    """Make another program print."""
    subprocess.run(["/bin/sh", "-c", f"echo child out {word}; echo child err {word} >&2"], check=True)
    return word


def speak_and_crash(word: str) -> None:
    """Print, from Python and from C, then crash."""
    print(f"last words: {word}")
    ctypes.CDLL(None).printf(b"and %s", word.encode())
    os.abort()


def start_a_program(how: str) -> None:
    """Start a program, or use what starts one."""
    if how == "subprocess":
        subprocess.run(["true"], check=True)
    elif how == "spawn":
        multiprocessing.get_context("spawn").Process(target=print).start()
    else:
        SharedMemory(create=True, size=100)


def tally(name: str, amount: int = 1, then: str = "") -> int:
    """Add to a number that this process keeps; then crash or hang, if `then` says so."""
    _state[name] = _state.get(name, 0) + amount
    if then == "crash":
        os._exit(9)
    if then == "hang":
        time.sleep(1000)
    if then == "raise":
        raise ValueError("kept on")
    time.sleep(0.01)
    return _state[name]


pair = tool(lambda: [ANSWER, ANSWER], name="pair", description="The answer, twice.")
TOOLS: list[Tool[..., Any] | TypedTool[Any]] = [
    tool(uses_its_module),
    tool(takes_types_of_its_module),
    tool(wrapped),
    tool(Shelf(["Owl Moon", "Moon Palace", "Dune"]).find),
    tool(adder(10), name="add_ten"),
    tool(adder(100), name="add_a_hundred"),
    pair,
    tool(draw),
    tool(speak),
    tool(speak_through_a_child, needs={Capability.EXEC}),
    tool(speak_and_crash),
    tool(tally, lifetime="session"),
    tool(tally, name="tally_anew"),
    Typist().tool,
]

# -- by value ----------------------------------------------------------------------------------------------------------

BY_VALUE = [
    ("uses_its_module", {"value": 16.0}, [46.0, {"one": 1}, 16]),
    ("takes_types_of_its_module", {"point": {"x": 1, "y": 2}, "colour": "blue"}, {"x": 2.0, "y": 1.0}),
    ("wrapped", {"value": 7}, 42),
    ("find", {"word": "Moon"}, ["Owl Moon", "Moon Palace"]),
    ("add_ten", {"value": 1}, 11),
    ("add_a_hundred", {"value": 1}, 101),
    ("pair", {}, [42, 42]),
]


@pytest.mark.parametrize(("name", "arguments", "output"), BY_VALUE, ids=[name for name, *_ in BY_VALUE])
async def test_a_function_of_the_users_own_reaches_its_cell(
    main: Session, name: str, arguments: dict[str, Any], output: Any
) -> None:
    result = await main.call(name, arguments)
    assert result.unwrap() == output


@pytest.mark.parametrize("how", ["subprocess", "spawn", "shared memory"])
async def test_the_error_of_a_program_that_may_not_start_names_the_missing_capability(
    supervise: Callable[..., Supervisor], workspace: Path, how: str
) -> None:
    async with supervise([start_a_program]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("start_a_program", {"how": how})
    assert result.error is not None and result.error.message.startswith(
        "PermissionError: [Errno 13] Permission denied: a tool starts programs only with Capability.EXEC: "
    )


def test_functions_of_main_and_of_a_module_beside_it_reach_their_cells(tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "beside.py").write_text("RATE = 3\ndef rated(value):\n    return value * RATE\n")
    program = f"""
        import anyio, beside
        from toolcell import Supervisor, tool
        LIMIT = 5

        def clamp(value: int) -> int:
            return min(value, LIMIT)

        @tool
        def rate(value: int) -> int:
            "Rate a value."
            return clamp(beside.rated(value))

        def plain(value: int) -> list[int]:
            "Not even decorated."
            return [clamp(value)]

        async def main() -> None:
            async with Supervisor(tools=[rate, plain]) as supervisor:
                session = await supervisor.open_session("main", workspace={str(workspace)!r})
                print([(await session.call(name, {{"value": value}})).unwrap()
                       for name in ("rate", "plain") for value in (1, 9)])

        if __name__ == "__main__":
            anyio.run(main)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout.strip() == "[3, 5, [1], [5]]", done.stderr


async def test_a_function_that_holds_a_lock_is_refused_when_the_supervisor_is_entered(
    supervise: Callable[..., Supervisor],
) -> None:
    lock = threading.Lock()

    def locked() -> bool:
        """Use a lock of the supervisor's process."""
        return lock.acquire()

    with pytest.raises(UsageError, match="'locked'"):
        async with supervise([locked]):
            pass


# -- randomness --------------------------------------------------------------------------------------------------------


async def test_no_two_calls_draw_the_same(main: Session) -> None:
    other = await main.open_child("branch")
    drawn: list[dict[str, str]] = []

    async def call(session: Session) -> None:
        drawn.append((await session.call("draw")).unwrap())

    for _ in range(3):
        await call(main)  # one after the other, in one cell
    async with anyio.create_task_group() as tasks:
        for session in (main, other) * 4:  # side by side, in several
            tasks.start_soon(call, session)
    for name in drawn[0]:
        assert len({one[name] for one in drawn}) == len(drawn), name


# -- what is printed ---------------------------------------------------------------------------------------------------


def spoken(stream: str, word: str, times: int = 1) -> list[str]:
    return sorted([f"python {stream} {word}", f"c {stream} {word}"] * times)


async def test_what_python_and_c_print_is_captured_from_both_streams(main: Session) -> None:
    for word in ("one", "two", "three"):
        result = await main.call("speak", {"word": word, "times": 3})
        assert sorted(result.stdout.text.splitlines()) == spoken("out", word, 3)
        assert sorted(result.stderr.text.splitlines()) == spoken("err", word, 3)
        assert result.stdout.total_bytes == len(result.stdout.text) and result.stdout.omitted_bytes == 0


async def test_what_calls_print_side_by_side_is_each_ones_own(main: Session) -> None:
    async def call(word: str) -> None:
        result = await main.call("speak", {"word": word, "times": 20})
        assert sorted(result.stdout.text.splitlines()) == spoken("out", word, 20)
        assert sorted(result.stderr.text.splitlines()) == spoken("err", word, 20)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(call, f"word{number}")


async def test_what_a_program_prints_that_the_tool_started_is_the_calls_own(main: Session) -> None:
    result = await main.call("speak_through_a_child", {"word": "hello"})
    assert (result.stdout.text, result.stderr.text) == ("child out hello\n", "child err hello\n")


async def test_what_a_call_printed_before_it_crashed_is_not_lost_and_not_the_next_ones(main: Session) -> None:
    crashed = await main.call("speak_and_crash", {"word": "adieu"})
    assert isinstance(crashed.error, Crashed) and crashed.stdout.text == "last words: adieu\nand adieu"
    following = await main.call("add_ten", {"value": 2})
    assert (following.output, following.stdout.text) == (12, "")


# -- kept over calls ---------------------------------------------------------------------------------------------------


async def test_a_tool_of_a_sessions_lifetime_may_keep_a_program_to_write_to(main: Session) -> None:
    assert (await main.call("write_stdin", {"text": "one"})).unwrap() == "1: one\n"
    assert (await main.call("write_stdin", {"text": "two"})).unwrap() == "2: two\n"


async def test_a_tool_of_a_sessions_lifetime_keeps_its_state_and_one_of_a_calls_does_not(main: Session) -> None:
    assert [(await main.call("tally", {"name": "a"})).output for _ in range(3)] == [1, 2, 3]
    assert [(await main.call("tally_anew", {"name": "a"})).output for _ in range(3)] == [1, 1, 1]


async def test_each_session_keeps_a_process_of_its_own(main: Session) -> None:
    other = await main.open_child("branch")
    assert (await main.call("tally", {"name": "a"})).output == 1
    assert (await other.call("tally", {"name": "a"})).output == 1
    assert (await main.call("tally", {"name": "a"})).output == 2


async def test_calls_of_a_kept_tool_at_once_reach_the_one_process_that_there_is(main: Session) -> None:
    outputs: list[int] = []

    async def call() -> None:
        outputs.append((await main.call("tally", {"name": "a"})).unwrap())

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(call)
    assert sorted(outputs) == [1, 2, 3, 4, 5, 6]


async def test_a_kept_tool_that_raises_is_kept(main: Session) -> None:
    assert (await main.call("tally", {"name": "a"})).output == 1
    assert (await main.call("tally", {"name": "a", "then": "raise"})).is_error
    assert (await main.call("tally", {"name": "a"})).output == 3


@pytest.mark.parametrize(("then", "error"), [("crash", Crashed), ("hang", Timeout)])
async def test_a_kept_tool_that_crashes_or_hangs_is_one_error_and_a_restart(
    main: Session, then: str, error: type
) -> None:
    assert (await main.call("tally", {"name": "a", "amount": 5})).output == 5
    ended = await main.call("tally", {"name": "a", "then": then}, timeout=0.5)
    assert isinstance(ended.error, error)
    assert [(await main.call("tally", {"name": "a"})).unwrap() for _ in range(2)] == [1, 2]


async def test_a_kept_process_is_gone_with_its_session(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace)
    await session.call("tally", {"name": "a"})
    own = [cell.pid for cell in runtime_of(shared).pool.cells.values() if cell.spec.key.session_id == session.id]
    await session.close()
    with anyio.fail_after(PATIENCE_S):
        while any(Path(f"/proc/{pid}").exists() for pid in own):
            await anyio.sleep(0.01)


@pytest.fixture(autouse=True)
def nothing_ran_here() -> Iterator[None]:
    """Check that the tools of this file run in cells, never in this process."""
    yield
    assert _state == {}
