"""A table of every way in which a tool can misbehave, and how its call must end. For each row:

- the result is the typed error that the row names, with the facts that it names;
- a call of another session that is in flight meanwhile returns its value;
- the next call of the same session works, and finds everything as the first call did;
- what the result says about time, processor and memory is plausible.
"""

import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import misbehaving as m
from tests.helpers import PATIENCE_S

from toolcell import (
    Capability,
    Crashed,
    LimitExceeded,
    Limits,
    Overloaded,
    Profile,
    RecentJournal,
    Session,
    SessionKind,
    Supervisor,
    Timeout,
    Tool,
    ToolResult,
    tool,
)

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
MIB = 1024 * 1024
LIMITS = Limits(
    wall_s=200.0,
    cpu_s=60.0,
    memory_bytes=128 * MIB,
    processes=24,
    open_files=64,
    file_bytes=4 * MIB,
    scratch_bytes=8 * MIB,
    scratch_inodes=1024,
    output_bytes=MIB,
    result_bytes=MIB,
)
DEADLINE = 0.4
"""The timeout of calls that only a deadline ends."""


@dataclass
class Seen:
    """What the test has seen after a row's call and the next call."""

    result: ToolResult
    took: float
    incidents: list[str]
    traceback: str
    next: dict[str, Any]
    first: dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """A fact that must hold for what the test has seen."""

    what: str
    holds: Callable[[Seen], bool]

    def __repr__(self) -> str:
        return self.what


def signal(number: int) -> Fact:
    return Fact(f"signal {number}", lambda seen: _crash(seen) == (number, None))


def exit_code(code: int) -> Fact:
    return Fact(f"exit code {code}", lambda seen: _crash(seen) == (None, code))


def _crash(seen: Seen) -> tuple[int | None, int | None] | None:
    error = seen.result.error
    return (error.signal, error.exit_code) if isinstance(error, Crashed) else None


def limit(resource: str, figure: float | None = None) -> Fact:
    def holds(seen: Seen) -> bool:
        error = seen.result.error
        return isinstance(error, LimitExceeded) and error.resource == resource and figure in (None, error.limit)

    return Fact(f"limit on {resource} of {figure}", holds)


def says(text: str) -> Fact:
    return Fact(
        f"message with {text!r}", lambda seen: seen.result.error is not None and text in seen.result.error.message
    )


def output(value: object) -> Fact:
    return Fact(f"output {value!r}", lambda seen: seen.result.output == value)


def incident(text: str) -> Fact:
    return Fact(f"an incident with {text!r}", lambda seen: any(text in one for one in seen.incidents))


def used(what: str, at_least: float, at_most: float = inf) -> Fact:
    return Fact(
        f"{what} from {at_least:,} to {at_most:,}",
        lambda seen: at_least <= getattr(seen.result.usage, what) <= at_most,
    )


def _elapsed(seen: Seen) -> float:
    return seen.result.error.elapsed if isinstance(seen.result.error, Timeout) else 0.0


AT_THE_DEADLINE = (
    Fact("elapsed", lambda seen: DEADLINE * 0.9 <= _elapsed(seen) <= seen.took + 0.01),
    Fact("retryable", lambda seen: seen.result.error is not None and seen.result.error.retryable),
)
A_NEW_CELL = Fact("another cell", lambda seen: seen.next["number"] <= seen.first["number"])
TRACEBACK_IN_THE_JOURNAL = Fact("traceback in the journal", lambda seen: "Traceback" in seen.traceback)
NO_TRACEBACK_FOR_THE_MODEL = Fact("no traceback for the model", lambda seen: "Traceback" not in seen.result.for_model())
BURNS = used("cpu_s", 0.01)
EATS = used("max_rss_bytes", 64 * MIB, 200 * MIB)
SHORT_MESSAGE = Fact("a bounded message", lambda seen: len(seen.result.for_model()) < 10_000)
PRINTED_ITS_LAST_WORD = Fact("the message on stderr", lambda seen: "had enough" in seen.result.stderr.text)
DENIED_OR_MEMORY = Fact(
    "EPERM or out of memory",
    lambda seen: limit("memory").holds(seen) or "PermissionError" in getattr(seen.result.error, "message", ""),
)
MUCH = {"out": 800_000, "err": 700_000}
"""More than `output_bytes` in all, less of each stream, which is what the limit is for."""


def _is_counted(seen: Seen) -> bool:
    """Whether the kept and the omitted output add up to the written output, and the note in the text says so."""
    for captured in (seen.result.stdout, seen.result.stderr):
        text = captured.text
        if captured.omitted_bytes:
            note = f"\n[{captured.omitted_bytes:,} of {captured.total_bytes:,} bytes left out]\n"
            if text.count(note) != 1:
                return False
            text = text.replace(note, "")
        if "\ufffd" not in text and len(text.encode()) + captured.omitted_bytes != captured.total_bytes:
            return False
    return True


COUNTED = Fact("kept and left out come to the total", _is_counted)
FLOODED = Fact(
    "over the limit, and not by much",
    lambda seen: LIMITS.output_bytes < seen.result.stdout.total_bytes + seen.result.stderr.total_bytes < 16 * MIB,
)
PRINTED_MUCH = (
    Fact("every byte of stdout", lambda seen: seen.result.stdout.total_bytes == MUCH["out"]),
    Fact("every byte of stderr", lambda seen: seen.result.stderr.total_bytes == MUCH["err"]),
    Fact("head and tail", lambda seen: (seen.result.stdout.text[0], seen.result.stderr.text[-1]) == ("<", ">")),
)
RAISED = (TRACEBACK_IN_THE_JOURNAL, NO_TRACEBACK_FOR_THE_MODEL)


@dataclass(frozen=True)
class Row:
    """How the call of `fn` must end. `kinds` are the error kinds that may end it, None for success. A row has several
    kinds only if two processes of the tool race each other.
    """

    fn: Callable[..., Any]
    kinds: tuple[str | None, ...]
    facts: tuple[Fact, ...]
    timeout: float
    arguments: dict[str, Any]
    limits: dict[str, float] | None
    uses: frozenset[Capability]

    @property
    def id(self) -> str:
        return self.fn.__name__

    @property
    def neighbour(self) -> str:
        """The name of the tool that looks around in this row's cell."""
        words = [*(f"{name}_{value:g}" for name, value in (self.limits or {}).items()), *sorted(self.uses)]
        return "_".join(["look_around", *words]).replace(".", "_").replace("+", "")


def row(
    fn: Callable[..., Any],
    kinds: str | tuple[str | None, ...] | None,
    *facts: Fact,
    timeout: float = 100.0,
    arguments: dict[str, Any] | None = None,
    limits: dict[str, float] | None = None,
    uses: frozenset[Capability] = frozenset(),
) -> Row:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if kinds == ("timeout",):
        facts, timeout = (*AT_THE_DEADLINE, *facts), DEADLINE
    return Row(fn, kinds, facts, timeout, arguments or {}, limits, uses)


MEMORY = limit("memory", LIMITS.memory_bytes)
PROCESSES = limit("processes", LIMITS.processes)
FILES = limit("files", LIMITS.open_files)
SCRATCH = limit("scratch", LIMITS.scratch_bytes)
RESULT = limit("result", LIMITS.result_bytes)
WRITE = frozenset({Capability.WRITE})
EXEC = frozenset({Capability.EXEC})

ROWS = [
    # exceptions and exits
    row(m.raise_an_exception, "execution", says("ValueError: boom"), *RAISED),
    row(m.raise_a_base_exception, "execution", says("KeyboardInterrupt: ctrl-c"), *RAISED),
    row(m.raise_generator_exit, "execution", says("GeneratorExit"), *RAISED),
    row(m.raise_a_group, "execution", says("several"), *RAISED),
    row(m.raise_with_a_broken_str, "execution", says("_Unprintable"), NO_TRACEBACK_FOR_THE_MODEL),
    row(m.raise_with_a_str_that_exits, "execution", says("_ExitsWhenPrinted"), NO_TRACEBACK_FOR_THE_MODEL),
    row(m.raise_with_a_huge_message, "execution", says("ValueError: xxx"), SHORT_MESSAGE),
    row(m.raise_a_spoofed_kind, "execution", says("let me in"), *RAISED),
    row(m.fail_with_data_that_cannot_be_sent, "execution", says("failed")),
    row(m.recurse, "execution", says("RecursionError"), *RAISED),
    row(m.read_stdin, "execution", says("EOFError"), *RAISED),
    row(m.exit_with_3, "crashed", exit_code(3)),
    row(m.exit_with_a_message, "crashed", exit_code(1), PRINTED_ITS_LAST_WORD),
    row(m.os_exit_7, "crashed", exit_code(7)),
    row(m.os_exit_from_a_thread, "crashed", exit_code(7)),
    row(m.give_no_result, "crashed", exit_code(0)),
    row(m.exec_something_else, "crashed", exit_code(5), uses=EXEC),
    # signals
    row(m.segfault, "crashed", signal(11)),
    row(m.abort, "crashed", signal(6)),
    row(m.kill_itself, "crashed", signal(9)),
    row(m.kill_everyone, "crashed", signal(9)),
    row(m.signal_its_init, None),
    row(m.overflow_the_c_stack, "crashed", signal(11)),
    row(m.stop_itself, "timeout"),
    row(m.ignore_every_signal, "timeout"),
    # time
    row(m.loop_for_ever, "timeout", BURNS),
    row(m.loop_in_c_for_ever, "timeout", BURNS),
    row(m.sleep_for_ever, "timeout"),
    row(m.swallow_everything, "timeout"),
    row(m.block_the_loop, "timeout"),
    row(m.burn_and_go_on, "limit_exceeded", limit("cpu", 0.25), used("cpu_s", 0.2), limits={"cpu_s": 0.25}),
    row(m.burn_in_children, "limit_exceeded", limit("cpu", 0.25), limits={"cpu_s": 0.25}),
    row(m.burn_in_short_children, "limit_exceeded", limit("cpu", 0.25), limits={"cpu_s": 0.25}),
    # memory
    row(m.eat_memory, "limit_exceeded", MEMORY, EATS),
    row(m.eat_memory_and_go_on, "limit_exceeded", MEMORY, EATS),
    row(m.ask_for_a_terabyte, "limit_exceeded", MEMORY),
    row(m.eat_memory_in_children, "limit_exceeded", MEMORY),
    row(m.eat_memory_in_a_memfd, ("execution", "limit_exceeded"), DENIED_OR_MEMORY),
    row(m.eat_shared_memory, "limit_exceeded", MEMORY),
    row(m.lock_memory, None, Fact("mlockall was refused", lambda seen: seen.result.output != 0)),
    # processes and descriptors
    row(m.fork_bomb, "limit_exceeded", PROCESSES),
    row(m.fork_bomb_that_goes_on, "limit_exceeded", PROCESSES),
    row(m.leave_zombies, "limit_exceeded", PROCESSES),
    row(m.thread_bomb, "limit_exceeded", PROCESSES),
    row(m.thread_bomb_that_goes_on, "limit_exceeded", limit("processes", 8), limits={"processes": 8}),
    row(m.open_files, "limit_exceeded", FILES),
    row(m.open_pipes, "limit_exceeded", FILES),
    row(m.fork_and_return_twice, None, output(1)),
    row(m.fork_and_raise_in_the_child, None, output(1)),
    row(m.leave_threads_and_exit_hooks, None, output(1)),
    row(m.leave_a_daemon, None, output("outliver"), arguments={"name": "outliver"}),
    # disk
    row(m.fill_the_scratch, "limit_exceeded", SCRATCH),
    row(m.fill_the_inodes, "limit_exceeded", limit("scratch", LIMITS.scratch_inodes)),
    row(m.write_a_huge_file, "limit_exceeded", limit("file_size", LIMITS.file_bytes)),
    row(m.write_a_huge_file_with_the_default_signal, "limit_exceeded", limit("file_size", LIMITS.file_bytes)),
    row(
        m.delete_the_scratch, None, Fact("an error", lambda seen: seen.result.output in ("PermissionError", "OSError"))
    ),
    row(m.dig_deep_directories, None, output(900)),
    row(m.lock_directories, None, output(1)),
    row(m.leave_strange_files, None, output(1), uses=WRITE, arguments={"outside": "."}),
    # results
    row(m.return_50_mib, "limit_exceeded", RESULT),
    row(m.return_many_elements, ("execution", "limit_exceeded")),
    row(m.return_an_object, "execution", says("object")),
    row(m.return_a_deep_list, "execution", says("deep")),
    row(m.return_a_list_in_itself, "execution", says("deep")),
    row(m.return_a_surrogate, "execution"),
    row(m.return_a_huge_number, "execution", says("64 bits")),
    row(m.return_an_endless_mapping, ("timeout", "execution", None), timeout=DEADLINE),
    # the protocol
    row(m.close_the_pipe, "protocol_violation"),
    row(m.close_every_descriptor, "protocol_violation"),
    row(m.send_random_bytes, "protocol_violation", incident("violation"), A_NEW_CELL),
    row(m.send_a_frame_of_4_gib, "protocol_violation", incident("frame length"), A_NEW_CELL),
    row(m.send_an_empty_frame, "protocol_violation", incident("frame length"), A_NEW_CELL),
    row(m.send_half_a_frame, "protocol_violation", incident("half a frame")),
    row(m.send_half_a_frame_and_stay, "timeout"),
    row(m.send_two_results, None, output("first"), incident("second result"), A_NEW_CELL),
    row(m.send_a_forged_call_number, "protocol_violation", incident("wrong call number"), A_NEW_CELL),
    row(m.send_an_unknown_message, "protocol_violation", incident("unknown message"), A_NEW_CELL),
    row(m.send_a_message_of_the_init, "protocol_violation", incident("out of place"), A_NEW_CELL),
    row(m.send_a_result_of_wrong_types, "protocol_violation", incident("malformed"), A_NEW_CELL),
    row(m.send_a_result_without_its_parts, "protocol_violation", incident(""), A_NEW_CELL),
    row(m.send_a_result_with_bad_parts, "protocol_violation", incident(""), A_NEW_CELL),
    row(m.send_a_result_as_deep_as_frames_go, "protocol_violation", incident(""), A_NEW_CELL),
    row(m.send_a_result_with_duplicate_keys, "protocol_violation", incident(""), A_NEW_CELL),
    row(m.send_an_error_with_a_made_up_reason, "protocol_violation", incident("reason"), A_NEW_CELL),
    row(m.flood_with_frames, "protocol_violation", incident("too many frames"), A_NEW_CELL),
    row(m.flood_with_requests, "protocol_violation", incident("too many requests"), A_NEW_CELL),
    row(m.answer_from_a_child, "protocol_violation", incident("violation"), A_NEW_CELL),
    # output
    row(m.flood_the_output, "limit_exceeded", limit("output", LIMITS.output_bytes), COUNTED, FLOODED),
    row(m.print_much, None, output(1), COUNTED, *PRINTED_MUCH, arguments=MUCH),
    row(m.print_garbage, None, output(1), COUNTED, Fact("8 bytes", lambda seen: seen.result.stdout.total_bytes == 8)),
    row(m.close_stdout, None, output(1)),
    row(m.replace_stdout, None, output(1)),
    row(m.replace_stdout_by_one_that_raises, None, output(1)),
    # Python's own state
    row(m.cancel_every_task, "execution", says("CancelledError")),
    row(m.stop_the_loop, "execution", says("loop")),
    row(m.leave_tasks, None, output(1)),
    row(m.patch_the_serialisers, None, output(1)),
    row(m.patch_os_write, ("crashed", "timeout", "protocol_violation"), timeout=DEADLINE),
    row(m.change_everything, None, output(1)),
]


def tools() -> list[Tool[..., Any]]:
    """A tool for each row, and a tool that looks around in each row's cell."""
    made = {each.id: tool(each.fn, name=each.id, limits=each.limits, uses=each.uses) for each in ROWS}
    for each in ROWS:
        made[each.neighbour] = tool(m.look_around, name=each.neighbour, limits=each.limits, uses=each.uses)
    return [*made.values(), tool(m.wait_for_file, needs={Capability.READ}), tool(m.echo)]


@dataclass
class Stage:
    """The supervisor that the rows share: the misbehaving session, and a session that must not be affected."""

    supervisor: Supervisor
    journal: RecentJournal
    victim: Session
    bystander: Session
    first: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    async def look_around(self, neighbour: str) -> dict[str, Any]:
        result = await self.victim.call(neighbour, timeout=PATIENCE_S)
        seen: dict[str, Any] = result.unwrap()
        return seen


@pytest.fixture(scope="module")
async def stage(
    anyio_backend: str, nothing_is_left_of_the_module: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    journal = RecentJournal()
    profile = Profile.for_kind("main").replace(limits=LIMITS)
    async with Supervisor(tools=tools(), profiles={SessionKind.MAIN: profile}, journal=journal) as supervisor:
        workspaces = [tmp_path_factory.mktemp(name) for name in ("victim", "bystander")]
        (workspaces[0] / "canary").write_text("alive")
        victim, bystander = [await supervisor.open_session("main", workspace=path) for path in workspaces]
        yield Stage(supervisor, journal, victim, bystander)


class Bystander:
    """A call of another session that is in flight all the time."""

    def __init__(self, session: Session, token: str) -> None:
        self._session = session
        self._token = token
        self.under_way = anyio.Event()
        self.result: ToolResult | None = None

    async def run(self) -> None:
        arguments = {"name": self._token, "token": self._token}
        self.result = await self._session.call("wait_for_file", arguments, on_progress=lambda *_: self.under_way.set())
        self.under_way.set()

    def release(self) -> None:
        (self._session.workspace / self._token).touch()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_a_tool_that_misbehaves_ends_as_it_must_and_nobody_else_notices(stage: Stage, row: Row) -> None:
    first = stage.first.get(row.neighbour) or await stage.look_around(row.neighbour)
    stage.first.setdefault(row.neighbour, first)
    arguments = row.arguments | ({"outside": str(stage.victim.workspace)} if "outside" in row.arguments else {})
    bystander = Bystander(stage.bystander, f"{row.id}-{time.monotonic_ns()}")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bystander.run)
        await bystander.under_way.wait()
        try:
            timeout = row.timeout
            started = time.monotonic()
            result = await stage.victim.call(row.id, arguments, timeout=timeout)
            while isinstance(result.error, Overloaded):  # on a busy machine its time was over before it began
                timeout *= 2
                started = time.monotonic()
                result = await stage.victim.call(row.id, arguments, timeout=timeout)
            took = time.monotonic() - started
            following = await stage.look_around(row.neighbour)
        finally:
            bystander.release()

    assert (result.error.kind if result.error else None) in row.kinds, result.error
    incidents = [record.data["what"] for record in stage.journal.of(kind="incident", call_id=result.call_id)]
    ended = stage.journal.of(kind="call", call_id=result.call_id)
    seen = Seen(result, took, incidents, str(ended[0].data.get("traceback", "")), following, first)
    for fact in row.facts:
        assert fact.holds(seen), f"{fact}\nbut {result}\n{took=} {incidents=}"

    assert changes(first, following) == {}
    assert (stage.victim.workspace / "canary").read_text() == "alive"
    assert_usage_is_plausible(result, took)
    assert result.session_id == stage.victim.id and result.tool == row.id and result.version == "1.0.0"
    assert len(ended) == 1, "one record for one call"
    assert bystander.result is not None
    assert bystander.result.unwrap() == bystander.result.output | {"token": bystander._token, "sum": 1_572_864}


def changes(first: dict[str, Any], then: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What a later call sees differently than the first call."""
    return {key: (first[key], then[key]) for key in first if key != "number" and first[key] != then[key]}


def assert_usage_is_plausible(result: ToolResult, took: float) -> None:
    usage = result.usage
    assert 0.0 < usage.wall_s <= took + 0.01
    assert 0.0 <= usage.queue_s <= took + 0.01
    assert 0.0 <= usage.cpu_s <= (usage.wall_s + 0.1) * (os.cpu_count() or 1)
    assert 4 * MIB <= usage.max_rss_bytes <= LIMITS.memory_bytes + 64 * MIB
    assert usage.attempts == 1


async def test_a_daemon_is_gone_when_the_next_call_runs(stage: Stage) -> None:
    name = f"dmn{os.getpid()}"
    during: list[int] = []
    result = await stage.victim.call(
        "leave_a_daemon", {"name": name}, on_progress=lambda *_: during.extend(named(name))
    )
    assert result.output == name
    assert len(during) == 1, "it was there while its call ran, or this test tests nothing"
    later: list[list[int]] = []
    following = await stage.victim.call(
        "leave_a_daemon", {"name": "other"}, on_progress=lambda *_: later.append(named(name))
    )
    assert following.output == "other" and later == [[]]
    assert not Path(f"/proc/{during[0]}").exists()


def named(name: str) -> list[int]:
    """The host's pids of the processes with this name."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                found.append(int(path.parent.name))
        except OSError:
            continue  # gone meanwhile
    return found


async def test_a_cell_that_lied_is_not_used_again_and_an_honest_one_is(stage: Stage) -> None:
    before = await stage.look_around("look_around")
    honest = await stage.look_around("look_around")
    assert honest["number"] > before["number"], "the same cell"
    assert (await stage.victim.call("send_two_results")).output == "first"
    assert (await stage.look_around("look_around"))["number"] < honest["number"], "another cell"


async def test_many_calls_that_misbehave_at_once_end_each_as_it_must(stage: Stage) -> None:
    wanted = {"raise_an_exception": "execution", "segfault": "crashed", "os_exit_7": "crashed", "echo": None}
    wanted |= {"send_random_bytes": "protocol_violation", "open_files": "limit_exceeded", "sleep_for_ever": "timeout"}
    ended: list[tuple[str, str | None]] = []

    async def call(name: str) -> None:
        result = await stage.victim.call(name, timeout=1.5 if name == "sleep_for_ever" else 10.0)
        ended.append((name, result.error.kind if result.error else None))

    async with anyio.create_task_group() as tasks:
        for name in [*wanted] * 3:
            tasks.start_soon(call, name)
    assert sorted(ended, key=str) == sorted([*wanted.items()] * 3, key=str)
