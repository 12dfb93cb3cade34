"""Every hostile program on every kind of machine that can be made of this one; README.md says how it works.

Each is judged three times: by what the tool saw, by what the supervisor made of it, and by what changed on the host.
"""

import errno
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .conftest import NewStage
from .kit import NO_CGROUP, NO_NAMESPACES, VARIANTS, Ends, Told
from .machines import HERE, MACHINES, NAMESPACES, Machine, Ran, possible_here, programs, run

pytestmark = [
    pytest.mark.usefixtures("nothing_is_left_of_the_module"),
    pytest.mark.timeout(0),  # the first test of a machine waits for all programs, of which each has a limit of its own
]

# The list of attacks that a release is judged by; every one has a program here.
CASES = {
    "F": "1 3 5 7 9 11 13 15 17 19 21 23 25 27 29 31 33 35 37 39 41",
    "N": "1 3 5 7 9 11 13 15 17 19 21 23 25",
    "P": "1 3 5 7 9 11 13 15 17 19 21 23 25 27 29",
    "R": "1 3 5 7 9 11 13 15 17 19 21 23 25 27 29 31 33",
    "X": "1 3 5 7 9 11 13 15 17 19 21 23 25 27",
    "Y": "1 3 5 7 9 11 13 15 17 19 21 23 25 27",
    "I": "1 3 5 7 9 11 13 15 17",
    "V": "1 3 5 7 9 11 13 15 17 19",
}
AREAS = {
    "fs": "files",
    "net": "network",
    "proc": "processes",
    "res": "limits",
    "wire": "protocol",
    "py": "interpreter",
    "info": "information",
    "priv": "privileges",
}
"""How the names of an area's programs begin, and its folder."""
PAIRS = [
    pytest.param(machine, name, id=f"{machine.name.replace(' ', '_')}-{name}")
    for machine in possible_here()
    for name in programs()
    if name.split("_")[0] in machine.sections
]
machines_here = pytest.mark.parametrize("machine", possible_here(), ids=lambda machine: machine.name.replace(" ", "_"))

RunOn = Callable[[Machine], Ran]


@pytest.fixture(scope="module")
def run_on(warm: None, nothing_is_left_of_the_module: None, new_stage: NewStage) -> RunOn:
    """Run all programs on a machine, once."""

    @cache
    def run_all(machine: Machine) -> Ran:
        names = [name for name in programs() if name.split("_")[0] in machine.sections]
        return run(machine, new_stage(), names)

    return run_all


def fits(wanted: object, record: dict[str, Any]) -> bool:
    """Whether a call ended as wanted: an Ends, a value, or a tuple of such, any of which will do."""
    if isinstance(wanted, tuple):
        return any(fits(one, record) for one in wanted)
    error = record["error"]
    if isinstance(wanted, Told):
        return error is None and wanted.fact in record["told"]
    if not isinstance(wanted, Ends):
        return error is None and equal(wanted, record["output"])
    if error is None or error["kind"] != wanted.kind:
        return False
    if isinstance(wanted.fact, int):
        return wanted.fact in (error.get("signal"), error.get("exit_code"))
    return wanted.fact in (error.get("resource"), "") or wanted.fact in error["message"]


def equal(wanted: object, output: object) -> bool:
    """Whether a value is as wanted, where a tuple inside a list holds what will do."""
    if isinstance(wanted, tuple):
        return any(equal(one, output) for one in wanted)
    if isinstance(wanted, list) and isinstance(output, list):
        return len(wanted) == len(output) and all(map(equal, wanted, output))
    return wanted == output and type(wanted) is type(output)


@pytest.mark.parametrize(("machine", "program"), PAIRS)
def test_a_hostile_program_sees_what_it_must_and_harms_nothing(machine: Machine, program: str, run_on: RunOn) -> None:
    ran, module = run_on(machine), programs()[program]
    record = ran.records.get(program)
    assert record is not None, f"no result; unfinished: {ran.unfinished}\n{ran.end}\n{ran.stderr[-3000:]}"
    assert record["raised"] == "", "session.call never raises for what a tool does"
    wanted = getattr(module, "VARIES", {}).get(machine.name, module.EXPECT)
    assert fits(wanted, record), f"{wanted=}\n{record}"
    assert any(getattr(module, "INCIDENT", "") in incident for incident in record["incidents"] or [""]), record
    assert record["cpu_s"] >= getattr(module, "MEASURED_CPU_S", 0.0)
    assert record["next"] == record["first"], "the next call finds everything as the first one did"
    harm = getattr(module, "HARM", {}).get(machine.name)
    if harm is None:
        assert record["host"] == []
    else:
        assert any(harm in change for change in record["host"]), "a known harm that is none any more: take it out"


@machines_here
def test_supervisor_and_other_sessions_are_as_before(machine: Machine, run_on: RunOn) -> None:
    ran = run_on(machine)
    assert ran.unfinished == [] and ran.end["end"] == machine.name, ran.stderr[-3000:]
    before, after, same_cell = ran.end["bystander"]
    assert before == after and same_cell
    assert ran.end["residue"] == []


@machines_here
def test_every_result_says_what_is_missing(machine: Machine, run_on: RunOn) -> None:
    for record in run_on(machine).records.values():
        if not record["raised"]:
            assert record["sandbox"]["allowed_missing"] == sorted(machine.allow)
            assert not set(machine.allow) & set(record["sandbox"]["on"]) and set(machine.allow) <= set(
                record["missing"]
            )


A_FEW = ["fs_read_a_file_of_the_host", "fs_write_the_workspace", "net_tcp", "proc_kill_the_supervisor", "py_segfault"]


def test_no_namespaces_is_no_worse_where_not_even_an_empty_unshare_is_allowed(warm: None, new_stage: NewStage) -> None:
    refuse = ("unshare", errno.EPERM, 0)  # whatever its flags, as Docker's filter does
    machine = Machine(NO_NAMESPACES, ordinary_user=True, refuse=refuse, allow=NAMESPACES, lanes=1, processes=60)
    _assert_all_fit(machine, run(machine, new_stage(), A_FEW))


if os.geteuid() == 0:  # an ordinary user cannot hide them

    def test_cgroups_that_are_mounted_and_hidden_are_no_worse_than_none(warm: None, new_stage: NewStage) -> None:
        machine = Machine(NO_CGROUP, cgroups="hidden")
        _assert_all_fit(machine, run(machine, new_stage(), A_FEW))


def _assert_all_fit(machine: Machine, ran: Ran) -> None:
    assert sorted(ran.records) == sorted(A_FEW), f"{ran.end}\n{ran.stderr[-3000:]}"
    for name, record in ran.records.items():
        module = programs()[name]
        assert fits(getattr(module, "VARIES", {}).get(machine.name, module.EXPECT), record), record
        assert record["host"] == []


def test_there_is_a_program_for_every_case_of_the_list() -> None:
    named = {case for module in programs().values() for case in re.findall(r"\b[FNPRXYIV]\d\d\b", module.__doc__ or "")}
    wanted = {f"{section}{int(number):02}" for section, numbers in CASES.items() for number in numbers.split()}
    assert wanted <= named, sorted(wanted - named)


def test_programs_are_many_and_say_what_they_are() -> None:
    assert len(programs()) == len(list((HERE / "programs").rglob("*.py"))) >= 200
    for name, module in programs().items():
        assert module.__file__ == str(HERE / "programs" / AREAS[name.split("_")[0]] / f"{name}.py")
        assert "\n\nSource: " in (module.__doc__ or ""), name
        assert callable(module.attack) and hasattr(module, "EXPECT"), name
        assert set(getattr(module, "VARIES", {})) | set(getattr(module, "HARM", {})) <= set(VARIANTS), name


def test_the_readme_names_all_that_a_poorer_machine_cannot_promise() -> None:
    text = Path(HERE / "README.md").read_text()
    for machine in MACHINES:
        for promise, instead in machine.lost:
            assert f"| {promise} | {machine.name} | {instead} |" in text
