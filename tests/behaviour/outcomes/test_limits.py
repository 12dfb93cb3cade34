"""Each limit, exceeded by a call itself and by its children, on machines with and without control groups.

The table has the tool's action and the ending of its call. `docs/limits.md` has the same by limit.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.escape.kit import NO_CGROUP, ROOT, ROOTLESS
from tests.escape.machines import MACHINES, command_on

from toolcell import Limits

from .limits import BRIEF_BYTES, BRIEF_S, KEPT_S, LIMITS, MIB, POOL_BYTES, WORK_S

pytestmark = pytest.mark.usefixtures("warm", "nothing_is_left_of_the_module")

HERE = Path(__file__).parent
Ends = tuple[str, str, float]


def limit(resource: str, figure: float) -> Ends:
    return ("limit_exceeded", resource, figure)


MEMORY = limit("memory", LIMITS.memory_bytes)
TABLE: dict[str, Ends | str | bool] = {
    # memory
    "eat_memory": MEMORY,
    "eat_memory_in_children": MEMORY,
    "eat_shared_memory": MEMORY,
    "children_take_too_much": MEMORY,
    "child_asks_for_too_much": "MemoryError",
    "pool_that_shares": "000000",
    # memory of the kernel
    "fill_sockets_in_children": limit("memory", BRIEF_BYTES),
    "ask_for_larger_buffers": True,
    "spread_page_tables": limit("memory", BRIEF_BYTES),
    "take_many_locks": MEMORY,
    "take_many_locks_as_a_kept_process": limit("memory", POOL_BYTES),
    # processor
    "burn_in_short_children": limit("cpu", BRIEF_S),
    "child_burns": limit("cpu", BRIEF_S),
    "burn_in_the_second_turn": limit("cpu", KEPT_S),
    "burn_in_turns_and_die": ("crashed", "", 0),
    # processes and threads
    "fork_bomb": limit("processes", LIMITS.processes),
    "thread_bomb": limit("processes", LIMITS.processes),
    # descriptors
    "open_files": limit("files", LIMITS.open_files),
    "child_opens_files": "EMFILE",
    # files and scratch
    "write_a_huge_file": limit("file_size", LIMITS.file_bytes),
    "write_a_huge_file_with_the_default_signal": limit("file_size", LIMITS.file_bytes),
    "child_writes_a_huge_file": "SIGXFSZ",
    "fill_the_scratch": limit("scratch", LIMITS.scratch_bytes),
    "child_fills_the_scratch": "ENOSPC",
    "child_uses_the_inodes": "ENOSPC",
    "fill_the_inodes": limit("scratch", LIMITS.scratch_inodes),
    # output and result
    "flood_the_output": limit("output", LIMITS.output_bytes),
    "child_floods_the_output": limit("output", LIMITS.output_bytes),
    "return_50_mib": limit("result", LIMITS.result_bytes),
    # and what is none
    "sleep_for_ever": ("timeout", "", 0),
    "segfault": ("crashed", "", 0),
    "again_from_a_pipe": ("execution", "", 0),
    "files_of_the_machine": ("execution", "", 0),
    "lock_a_page": ("execution", "", 0),
}
ONLY_WITH_A_CGROUP: dict[str, Ends | str] = {
    "children_take_too_much_for_a_moment": limit("memory", BRIEF_BYTES),  # too short for a watch
    "again_after_a_refused_fork": limit("processes", LIMITS.processes),  # only the kernel's count remembers
}
TURNS = {"burn_in_turns": 5, "burn_in_turns_and_die": 2, "burn_in_the_second_turn": 2}
"""How often a kept process is called; the last call is judged."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""What an account may lack of the time in the program, and as much of the time in the kernel, of each process."""
ROUNDING = 1e-6  # of sums of ticks, which are no binary fractions
ACCOUNTS = ["fill_connections", "work_in_children", "hold_in_children", "claim_to_have_used_nothing"]

Called = Callable[[str], dict[str, dict[str, Any]]]
machines = pytest.mark.parametrize("machine", [ROOT, ROOTLESS, NO_CGROUP] if os.geteuid() == 0 else [ROOTLESS])


@pytest.fixture(scope="module")
def called(nothing_is_left_of_the_module: None) -> Called:
    """The outcomes of all calls on a machine, by the tool's name. The calls are made once."""

    @cache
    def call_all(name: str) -> dict[str, dict[str, Any]]:
        machine = next(each for each in MACHINES if each.name == name)
        names = [*(TABLE.keys() - TURNS.keys()), *ACCOUNTS, *(ONLY_WITH_A_CGROUP if name == ROOT else ())]
        names += [each for each, turns in TURNS.items() for _ in range(turns)]
        command = command_on(machine, [sys.executable, "-I", str(HERE / "limits.py"), *names], [str(HERE)])
        done = programs.run(command, cwd="/")
        assert done.returncode == 0, done.stderr
        return {record["name"]: record for record in map(json.loads, done.stdout.splitlines())}

    return call_all


def assert_ended(record: dict[str, Any], wanted: Ends | str | int) -> None:
    if not isinstance(wanted, tuple):
        assert record["ends"] == ["", "", 0] and record["output"] == wanted, record
    else:
        assert tuple(record["ends"]) == wanted, record


@machines
@pytest.mark.parametrize("name", TABLE)
def test_a_call_that_hits_a_limit_ends_with_its_name_and_figure(machine: str, name: str, called: Called) -> None:
    assert_ended(called(machine)[name], TABLE[name])


@machines
def test_the_buffers_of_connections_on_the_hosts_network_are_bounded_and_counted(machine: str, called: Called) -> None:
    record = called(machine)["fill_connections"]
    if machine == ROOT:  # as on v1, where the kernel stops a sender at an eighth of the memory, or at 16 MiB
        assert_ended(record, record["output"])
        assert 4 * MIB < record["output"] <= 20 * MIB and record["usage"]["memory_bytes"] > record["output"]
    else:
        assert_ended(record, limit("memory", BRIEF_BYTES))


@machines
def test_the_message_has_the_limit_with_its_unit(machine: str, called: Called) -> None:
    for name, figure in {
        "eat_memory": "memory: 128 MiB",
        "child_burns": f"cpu: {BRIEF_S:g} s",
        "open_files": f"files: {LIMITS.open_files}",
    }.items():
        assert f" exceeded its limit on {figure}. " in called(machine)[name]["message"]


@machines
def test_each_call_of_a_kept_process_has_its_own_processor_time(machine: str, called: Called) -> None:
    assert_ended(called(machine)["burn_in_turns"], TURNS["burn_in_turns"])


@pytest.mark.root
@pytest.mark.parametrize("name", ONLY_WITH_A_CGROUP)
def test_what_only_the_counters_of_a_cgroup_saw_decides(name: str, called: Called) -> None:
    assert_ended(called(ROOT)[name], ONLY_WITH_A_CGROUP[name])


@machines
def test_npm_and_three_workers_of_node_fit_into_the_default_limits_and_a_program_over_its_memory_ends(
    machine: str,
) -> None:
    script = [sys.executable, "-I", str(HERE / "programs.py")]
    command = command_on(next(each for each in MACHINES if each.name == machine), script, [str(HERE)])
    done = programs.run(command, cwd="/")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["npm"]["exit_code"] == 0 and found["installed"], found["npm"]
    assert found["threads"]["stdout"] == "three workers\n", found["threads"]
    if machine != ROOT:  # a second layer beside the watch: 4 GiB at once are more than a program may reserve
        assert "Cannot allocate memory" in found["reserver"]["stderr"], found["reserver"]
    resource, most = found["eater"]
    assert resource == "memory" and most <= Limits().memory_bytes * 1.5, found["eater"]


@machines
def test_usage_has_the_processor_time_of_children_and_orphans(machine: str, called: Called) -> None:
    usage = called(machine)["work_in_children"]["usage"]
    assert usage["cpu_s"] >= 2 * WORK_S - 4 * TICK_S - ROUNDING, "of a child and of an orphan, in ticks"


@machines
def test_usage_has_memory_and_processes_of_children(machine: str, called: Called) -> None:
    usage = called(machine)["hold_in_children"]["usage"]
    assert 40 * MIB * 0.9 <= usage["memory_bytes"] <= 100 * MIB
    assert 3 <= usage["processes"] <= 8, "the call's own and its children, as many as the watch saw at once"


@machines
def test_usage_does_not_come_from_the_tool(machine: str, called: Called) -> None:
    usage = called(machine)["claim_to_have_used_nothing"]["usage"]
    assert usage["cpu_s"] >= WORK_S - 2 * TICK_S - ROUNDING


def test_the_table_of_evidence_has_every_limit() -> None:
    page = (HERE.parents[2] / "docs" / "limits.md").read_text()
    table = page.partition("## What tells that a limit was hit")[2].partition("## ")[0]
    first_cells = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    missing = [each.name for each in fields(Limits) if f"`{each.name}`" not in first_cells]
    assert missing == []
