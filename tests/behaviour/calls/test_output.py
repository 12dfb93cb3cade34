"""Printed output is never lost, however the call ends and however long the output is. Commands and tools in real
cells.
"""

import array
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import misbehaving
from tests.helpers import PATIENCE_S

import toolcell.blocking
from toolcell import (
    Cancelled,
    Capability,
    Crashed,
    CutShort,
    Hook,
    LimitExceeded,
    ProtocolViolation,
    RecentJournal,
    Session,
    Supervisor,
    Timeout,
    ToolCall,
    ToolContext,
    ToolResult,
    base_tools,
    host_tool,
    tool,
)
from toolcell.dispatch.callbacks import WAITING_BYTES, OutputListener
from toolcell.session import core_of
from toolcell.supervisor import runtime_of
from toolcell_tools.context import HostContext

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
KEPT = 30_000
FILE_BYTES = 4 * 1024 * 1024  # of the small limits of `shared`
COUNT = "".join(f"{number}\n" for number in range(1, 100_001)).encode()
"""What `seq 1 100000` prints."""


def speak(ctx: ToolContext, then: str) -> None:
    """Print to both streams, report progress, and end as `then` says.

    Args:
        then: How to go on.
    """
    print("to stdout")
    print("to stderr", file=sys.stderr)
    ctx.progress("began")
    ctx.progress("2 of \u202e5", 0.4)
    if then == "crash":
        os.kill(os.getpid(), signal.SIGABRT)
    if then == "exit":
        os._exit(3)
    if then == "eat":
        bytearray(1024 * 1024 * 1024)
    if then == "flood":
        for _ in range(200):
            print("x" * 10_000)
    time.sleep(60)


def print_bytes(size: int) -> int:
    """Print `size` bytes.

    Args:
        size: How many.
    """
    print("<" + "x" * (size - 3) + ">")
    return size


def run_twice(ctx: ToolContext) -> list[str]:
    """Run two commands, one after the other."""
    assert ctx.shell is not None
    return [ctx.shell.run(f"echo {word}; echo {word} >&2").stdout for word in ("one", "two")]


def half_a_line(then: str, lines: int = 0, pause_s: float = 0.0) -> None:
    """Print lines, then an incomplete line, and end as `then` says.

    Args:
        then: How to go on.
        lines: How many complete lines to print first, without a pause.
        pause_s: How long to wait after these lines, before one more.
    """
    for number in range(lines):
        print(number)
    if pause_s:
        time.sleep(pause_s)
        print("a line")
    print("half", "a", end="")
    sys.stdout.write(" line")
    if then != "kill":
        sys.stdout.buffer.write(b" more")
    sys.stderr.write("and here")
    if then == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if then == "crash":
        os.abort()
    if then == "exit":
        os._exit(3)
    if then == "eat":
        bytearray(1024 * 1024 * 1024)
    while then == "spin":
        pass
    time.sleep(60)


def print_interrupted(size: int) -> int:
    """Print `size` bytes in one piece, while a signal arrives each millisecond.

    Args:
        size: How many.
    """
    interrupted = [0]

    def on_alarm(*_: object) -> None:
        interrupted[0] += 1

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while not interrupted[0]:
        pass
    sys.stdout.write("x" * size)
    sys.stdout.buffer.write(memoryview(array.array("I", [0x79797979] * 16)))
    signal.setitimer(signal.ITIMER_REAL, 0)
    return interrupted[0]


@host_tool
async def stay(ctx: HostContext) -> None:
    """Report progress, and sleep."""
    ctx.progress("nearly", 0.9)
    await anyio.sleep(60)


TOOLS: list[Any] = [
    *base_tools(),
    speak,
    print_bytes,
    half_a_line,
    print_interrupted,
    stay,
    tool(run_twice, needs={Capability.EXEC, Capability.WRITE}, lifetime="session"),
    tool(misbehaving.send_bad_output),
]


def said(result: ToolResult) -> dict[str, Any]:
    """The text of an error for the model, without the notices."""
    found: dict[str, Any] = json.loads(result.for_model().splitlines()[0])
    return found


# -- what ends a call ends none of its output --------------------------------------------------------------------------


async def test_a_command_that_is_ended_at_the_deadline_of_its_call_keeps_what_it_printed(main: Session) -> None:
    command = "echo started; echo careful >&2; sleep 60"
    result = await main.call("shell", {"command": command}, timeout=0.7)
    assert isinstance(result.error, Timeout)
    assert (result.stdout.text, result.stderr.text) == ("started\n", "careful\n")
    assert (said(result)["stdout"], said(result)["stderr"]) == ("started\n", "careful\n")
    first, *lines = result.display.splitlines()
    assert command in first and lines == ["started", "careful", result.error.message]


@pytest.mark.parametrize(
    ("then", "kind"),
    [("sleep", Timeout), ("crash", Crashed), ("exit", Crashed), ("eat", LimitExceeded), ("flood", LimitExceeded)],
)
async def test_a_tool_that_is_ended_keeps_what_it_printed_and_its_last_progress(
    main: Session, then: str, kind: type[CutShort]
) -> None:
    result = await main.call("speak", {"then": then}, timeout=2.0 if then != "sleep" else 0.5)
    assert isinstance(result.error, kind)
    assert result.error.progress is not None and result.error.progress.fraction == 0.4
    assert said(result)["error"]["progress"] == {"message": "2 of \\u202e5", "fraction": 0.4}
    assert result.stdout.text.startswith("to stdout\n") and result.stderr.text == "to stderr\n"
    assert said(result)["stdout"].startswith("to stdout\n") and said(result)["stderr"] == "to stderr\n"
    assert "speak(then=" in result.display and "to stderr" in result.display


@pytest.mark.parametrize(
    ("then", "kind"),
    [
        *(("sleep", Timeout), ("spin", Timeout)),
        *(("kill", Crashed), ("crash", Crashed), ("exit", Crashed), ("eat", LimitExceeded)),
    ],
)
async def test_a_part_of_a_line_is_kept_however_the_call_ends(main: Session, then: str, kind: type[CutShort]) -> None:
    result = await main.call("half_a_line", {"then": then}, timeout=0.4 if kind is Timeout else 2.0)
    assert isinstance(result.error, kind)
    whole = "half a line" if then == "kill" else "half a line more"
    assert (result.stdout.text, result.stderr.text) == (whole, "and here")
    assert (said(result)["stdout"], said(result)["stderr"]) == (whole, "and here")


async def test_after_a_flood_parts_of_a_line_are_kept_again_from_the_first_line_on_that_comes_later(
    main: Session,
) -> None:
    arguments = {"then": "kill", "lines": 5_000, "pause_s": 0.05}
    before = "".join(f"{number}\n" for number in range(5_000))
    for _ in range(2):
        result = await main.call("half_a_line", arguments)
        assert result.stdout.text == f"{before}a line\nhalf a line"


async def test_what_is_printed_in_one_piece_is_whole_whatever_signals_come(main: Session) -> None:
    result = await main.call("print_interrupted", {"size": 900_000})
    assert result.unwrap() > 1 and result.stdout.total_bytes == 900_064
    assert result.artifacts[0].read() == b"x" * 900_000 + b"y" * 64


async def test_a_call_that_ends_with_its_session_keeps_what_its_command_printed(
    shared: Supervisor, workspace: Path
) -> None:
    session = await shared.open_session("main", workspace=workspace)
    results: list[ToolResult] = []
    heard = anyio.Event()

    async def call() -> None:
        command = {"command": "echo here; sleep 60"}
        results.append(await session.call("shell", command, on_output=lambda _name, _text: heard.set()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await heard.wait()
        await session.close()
    assert isinstance(results[0].error, Cancelled) and said(results[0])["stdout"] == "here\n"


async def test_what_a_call_printed_whose_caller_has_gone_is_in_the_journal(main: Session) -> None:
    heard = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            arguments = {"command": "echo here; sleep 60"}
            await main.call("shell", arguments, call_id="left", on_output=lambda _name, _text: heard.set())

        tasks.start_soon(call)
        await heard.wait()
        tasks.cancel_scope.cancel()
    journal = core_of(main).services.journal
    assert isinstance(journal, RecentJournal)
    with anyio.fail_after(PATIENCE_S):
        while not (records := list(journal.of(kind="call", call_id="left"))):
            await anyio.sleep(0.01)
    assert (records[0].data["error"], records[0].data["stdout"]) == ("cancelled", "here\n")


async def test_a_host_tool_that_is_ended_keeps_its_last_progress(main: Session) -> None:
    result = await main.call("stay", timeout=0.2)
    assert isinstance(result.error, Timeout) and result.error.progress is not None
    assert (result.error.progress.message, result.error.progress.fraction) == ("nearly", 0.9)


# -- however much it is ------------------------------------------------------------------------------------------------


async def test_head_tail_and_count_of_a_long_stream_are_exact_at_the_deadline(main: Session) -> None:
    result = await main.call("shell", {"command": "seq 1 100000; sleep 60"}, timeout=1.0)
    assert isinstance(result.error, Timeout)
    captured = result.stdout
    assert (captured.total_bytes, captured.omitted_bytes) == (len(COUNT), len(COUNT) - KEPT)
    head, _, tail = captured.text.partition(f"\n[{captured.omitted_bytes:,} of {len(COUNT):,} bytes left out]\n")
    assert COUNT.startswith(head.encode()) and COUNT.endswith(tail.encode()) and len(head + tail) == KEPT
    assert said(result)["stdout_omitted_bytes"] == captured.omitted_bytes
    assert said(result)["stdout"].endswith("\n99999\n100000\n")
    assert result.artifacts[0].kind == "stdout" and result.artifacts[0].read() == COUNT


async def test_a_long_stream_of_a_command_is_whole_in_a_file_that_the_model_can_read(main: Session) -> None:
    result = await main.call("shell", {"command": "seq 1 100000 >&2; echo short"})
    (artifact,) = result.artifacts
    assert (artifact.kind, artifact.size, artifact.read()) == ("stderr", len(COUNT), COUNT)
    assert result.unwrap()["stderr_omitted_bytes"] == len(COUNT) - KEPT
    (notice,) = result.notices
    assert notice.kind == "output_cut" and f"stderr has {len(COUNT):,} bytes" in notice.message
    assert f"All of it is in '{artifact.path}' in the workspace" in result.for_model()
    window = await main.call("read", {"path": artifact.path, "offset": 70_000, "limit": 1})
    assert "70000" in window.for_model()


async def test_a_stream_that_is_no_longer_than_what_is_kept_has_no_file(main: Session) -> None:
    for tool_name, arguments in (
        ("print_bytes", {"size": KEPT}),
        ("shell", {"command": f"head -c {KEPT} /dev/zero | tr '\\0' x"}),
    ):
        result = await main.call(tool_name, arguments)
        assert (result.stdout.total_bytes, result.stdout.omitted_bytes) == (KEPT, 0)
        assert (result.artifacts, result.notices) == ([], ())


@pytest.mark.parametrize("kind", ["main", "worker"])
async def test_what_a_tool_printed_is_whole_in_a_file_too(shared: Supervisor, workspace: Path, kind: str) -> None:
    session = await shared.open_session(kind, workspace=workspace)
    result = await session.call("print_bytes", {"size": KEPT + 1})
    (artifact,) = result.artifacts
    assert artifact.read() == b"<" + b"x" * (KEPT - 2) + b">\n"
    assert list(workspace.iterdir()) == [], "it is for the program, not for the model"
    assert (result.output, result.notices) == (KEPT + 1, ()), "a model does not see what a tool prints"
    await session.close()


async def test_beyond_the_size_of_a_file_the_end_is_kept_and_the_rest_counted(main: Session) -> None:
    total = FILE_BYTES + 1_000_000
    command = f"head -c {total} /dev/zero | tr '\\0' x; printf END; sleep 60"
    result = await main.call("shell", {"command": command}, timeout=1.2)
    assert result.stdout.total_bytes == total + 3 and result.stdout.text.endswith("xEND")
    assert result.artifacts[0].size == FILE_BYTES
    assert f"stdout has {total + 3:,} bytes" in result.notices[0].message
    assert f"The first {FILE_BYTES:,} bytes are in" in result.notices[0].message


async def test_a_command_without_end_is_counted_and_its_tail_is_its_own(main: Session) -> None:
    for timeout in (1.0, 10.0, 90.0):  # a busy machine prints less in a second
        result = await main.call("shell", {"command": "yes"}, timeout=timeout)
        assert isinstance(result.error, (Timeout, LimitExceeded)) and result.error.kind == "timeout"
        assert result.stdout.text.endswith("y\ny\n")
        if result.stdout.total_bytes > FILE_BYTES:
            break
    else:
        pytest.fail("no more was counted than is kept")
    assert (await main.call("shell", {"command": "echo next"})).stdout.text == "next\n"


async def test_a_command_may_print_more_than_a_tool(main: Session) -> None:
    assert (await main.call("shell", {"command": "head -c 3000000 /dev/zero"})).stdout.total_bytes == 3_000_000
    assert isinstance((await main.call("print_bytes", {"size": 3_000_000})).error, LimitExceeded)


async def test_the_display_of_shell_has_the_command_the_output_and_the_exit_code(main: Session) -> None:
    result = await main.call("shell", {"command": "echo hi; printf 'a\\033[1mb\\n' >&2; exit 3"})
    assert result.display == "$ echo hi; printf 'a\\033[1mb\\n' >&2; exit 3\nhi\na\\x1b[1mb\nexit code 3"
    result = await main.call("shell", {"command": "seq 1 100000"})
    assert "\n100000\nexit code 0" in result.display and "left out" in result.display and len(result.display) < 10_000


async def test_a_file_into_which_nothing_could_be_written_is_neither_named_nor_left(
    supervise: Any, workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        runtime_of(supervisor).overflow._room = 10  # of 512 MiB
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("shell", {"command": "seq 1 100000"})
    assert result.artifacts == [] and [notice.kind for notice in result.notices] == ["output_cut"]
    assert "could not be saved" in result.notices[0].message and "workspace" not in result.notices[0].message
    assert [path.name for path in (workspace / ".toolcell/outputs").iterdir()] == []


class Thinks(Hook):
    """A hook that never returns."""

    async def after_call(self, call: ToolCall, result: ToolResult) -> None:
        await anyio.sleep_forever()


@pytest.mark.parametrize("who", ["a hook", "a listener"])
async def test_a_caller_that_goes_after_the_end_of_its_call_leaves_no_file_open(
    who: str, supervise: Any, workspace: Path
) -> None:
    async def never(*_: object) -> None:
        await anyio.sleep_forever()

    hooks, on_output = ([Thinks()], None) if who == "a hook" else ([], never)
    async with supervise(TOOLS, hooks=hooks, journal=RecentJournal()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with anyio.move_on_after(0.7) as gone:
            await session.call("shell", {"command": "seq 1 100000"}, call_id="left", on_output=on_output)
        assert gone.cancelled_caught
        with anyio.fail_after(PATIENCE_S):
            while open_below(workspace) or not supervisor.journal.of(kind="call", call_id="left"):
                await anyio.sleep(0.01)
        (record,) = supervisor.journal.of(kind="call", call_id="left")
        assert record.data["error"] == "cancelled" and record.data["stdout"].startswith("1\n2\n")


def open_below(directory: Path) -> list[str]:
    """The open files of this process that are below a directory."""
    found: list[str] = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(f"{directory}/")]


async def test_each_call_of_a_kept_process_has_the_output_of_its_own_commands(main: Session) -> None:
    for _ in range(2):
        result = await main.call("run_twice")
        assert result.output == ["one\n", "two\n"]
        assert (result.stdout.text, result.stderr.text) == ("one\ntwo\n", "one\ntwo\n")


async def test_output_that_is_none_is_a_violation(main: Session) -> None:
    for stream, skipped, size in ((3, 0, 1), (1, -1, 1), (1, 2**60, 1), (1, 0, 100_000)):
        result = await main.call("send_bad_output", {"stream": stream, "skipped": skipped, "size": size})
        assert isinstance(result.error, ProtocolViolation)


# -- heard live --------------------------------------------------------------------------------------------------------


async def test_output_is_heard_while_the_command_runs_in_order_and_before_the_result(main: Session) -> None:
    heard: list[tuple[str, str, float]] = []
    started = time.monotonic()
    command = "echo one; sleep 0.3; echo two >&2; sleep 0.3; printf '\\303'; sleep 0.1; printf '\\244'"

    def hear(name: str, text: str) -> None:
        heard.append((name, text, time.monotonic() - started))

    await main.call("shell", {"command": command}, on_output=hear)
    assert [(name, text) for name, text, _ in heard] == [("stdout", "one\n"), ("stderr", "two\n"), ("stdout", "ä")]
    assert heard[0][2] < heard[1][2] - 0.2 < heard[2][2] - 0.4


async def test_a_slow_listener_holds_nothing_up_and_hears_the_end(main: Session) -> None:
    heard: list[str] = []

    async def slowly(name: str, text: str) -> None:
        await anyio.sleep(0.2)
        heard.append(text)

    result = await main.call("shell", {"command": "seq 1 300000"}, on_output=slowly)
    assert result.error is None
    assert "".join(heard).startswith("1\n2\n") and heard[-1].endswith("\n300000\n")
    assert "bytes left out …]" in "".join(heard) and len("".join(heard)) < 1_500_000


async def test_a_listener_that_never_comes_back_or_raises_does_not_keep_the_result_back(main: Session) -> None:
    async def never(*_: object) -> None:
        await anyio.sleep_forever()

    def raising(*_: object) -> None:
        raise RuntimeError("the user's own")

    for listener in (never, raising):
        assert (await main.call("shell", {"command": "echo a"}, on_output=listener)).stdout.text == "a\n"


async def test_a_listener_that_raises_hears_on_and_is_told_of_once(
    main: Session, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def raising(name: str, text: str) -> None:
        heard.append(text)
        raise RuntimeError("the user's own")

    async def raising_later(name: str, text: str) -> None:
        raising(name, text)

    for listener in (raising, raising_later):
        heard.clear()
        caplog.clear()
        result = await main.call(
            "shell", {"command": "for n in 1 2 3; do echo $n; sleep 0.1; done"}, on_output=listener
        )
        assert result.error is None and heard == ["1\n", "2\n", "3\n"]
        assert len(caplog.records) == 1 and "the user's own" in caplog.text


async def test_the_log_says_once_that_a_plain_listener_holds_the_event_loop(
    main: Session, caplog: pytest.LogCaptureFixture
) -> None:
    def slowly(name: str, text: str) -> None:
        time.sleep(0.15)

    await main.call("shell", {"command": "echo a; sleep 0.3; echo b"}, on_output=slowly)
    assert caplog.text.count("of the event loop's time") == 1
    caplog.clear()
    await main.call("shell", {"command": "echo a"}, on_output=lambda _name, _text: None)
    assert not caplog.text


async def test_what_waits_for_a_listener_is_bounded_by_the_memory_that_it_takes(main: Session) -> None:
    heard: list[str] = []
    listener = OutputListener(core_of(main).services, "wide", lambda _name, text: heard.append(text))
    piece = "\N{GRINNING FACE}" + "x" * 16_000  # one character of four bytes: all of them take four
    for _ in range(40):
        listener.hear(1, piece.encode(), 0)
    await listener.heard()
    assert heard and sys.getsizeof("".join(heard)) <= WAITING_BYTES and "bytes left out" in heard[0]
    assert heard[0].endswith(piece)


async def test_a_piece_that_takes_more_than_all_that_may_wait_is_heard(main: Session) -> None:
    heard: list[str] = []
    listener = OutputListener(core_of(main).services, "wide", lambda _name, text: heard.append(text))
    piece = "\N{GRINNING FACE}" + "x" * 65_000
    listener.hear(1, piece.encode(), 0)
    listener.hear(1, piece.encode(), 0)
    await listener.heard()
    assert heard == [f"\n[… {len(piece.encode()):,} bytes left out …]\n{piece}"]


def test_a_listener_without_await_may_be_slow(workspace: Path) -> None:
    heard: list[tuple[str, str]] = []
    began, released = threading.Event(), threading.Event()

    def slowly(name: str, text: str) -> None:
        began.set()
        assert released.wait(PATIENCE_S)
        heard.append((name, text))

    with toolcell.blocking.Supervisor(TOOLS) as supervisor, ThreadPoolExecutor() as threads:
        session = supervisor.open_session("main", workspace=workspace)
        slow = threads.submit(session.call, "shell", {"command": "echo a; echo b >&2"}, on_output=slowly)
        assert began.wait(PATIENCE_S)
        other = supervisor.open_session("main", workspace=workspace)
        assert other.call("shell", {"command": "echo c"}).stdout.text == "c\n"
        assert not released.is_set() and not heard, "the loop goes on while the listener works"
        released.set()
        assert slow.result().error is None
    assert sorted(heard) == [("stderr", "b\n"), ("stdout", "a\n")]
