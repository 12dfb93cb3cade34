"""A seccomp filter as text for a review: its answer to each system call, with the reason."""

import errno
import struct
from collections.abc import Iterator, Sequence
from itertools import product

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.numbers import AUDIT_ARCH, MACHINE, TABLES

from .bpf import ALLOW, ARCH, KILL_PROCESS, NUMBER, high_word, low_word, refuse
from .seccomp import CHECKS, EXEC_REFUSED, NETWORK_CHECKS, REFUSED, WATCH_REFUSED, Check
from .seccomp import program as reviewed

LOAD, JUMP, JEQ, JGE, JSET, RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_COMPARES = {JEQ: "==", JGE: ">=", JSET: "&"}
_FIELDS = {
    NUMBER: "number",
    ARCH: "architecture",
    **{low_word(index): f"argument {index}" for index in range(6)},
    **{high_word(index): f"argument {index}, high word" for index in range(6)},
}
_ERRORS = 0x00050000
_INSTRUCTION = struct.Struct("=HBBI")

Code = Sequence[tuple[int, int, int, int]]


def disassemble(program: bytes) -> str:
    """One line for each instruction: its place, its text, and the system calls and reasons behind it.

    The notes come from the reviewed lists of `seccomp.py`: each known call is followed through this filter.
    """
    code: Code = list(_INSTRUCTION.iter_unpack(program))
    machine = _machine(code)
    notes = _notes(code, machine, _checks(program, machine))
    lines: list[str] = []
    names = {number: name for name, number in TABLES[machine].items()}
    for place, instruction in enumerate(code):
        text = _text(place, instruction)
        note = notes.get(place, "")
        if instruction[0] == JGE:
            number = instruction[3]
            note = "always" if number == 0 else f"from {names[number]}" if number in names else ""
        lines.append(f"{place:4}  {text:<40}{note and f'; {note}'}".rstrip())
    return "\n".join(lines)


def _machine(code: Code) -> str:
    compared = {value for operation, _yes, _no, value in code[:4] if operation == JEQ}
    return next((machine for machine, arch in AUDIT_ARCH.items() if arch in compared), MACHINE)


def _checks(program: bytes, machine: str) -> tuple[Check, ...]:
    """The argument checks of this filter, with those of its network policy."""
    for (reach, more), allow_exec, allow_watch in product(NETWORK_CHECKS.items(), (True, False), (True, False)):
        if program == reviewed(machine, allow_exec=allow_exec, reach=reach, allow_watch=allow_watch):
            return (*CHECKS, *more)
    raise SandboxError("This is no filter of this version", step="disassemble", cure="Pass what seccomp.program made.")


def _text(place: int, instruction: tuple[int, int, int, int]) -> str:
    operation, yes, no, value = instruction
    if operation == LOAD:
        return f"load {_FIELDS.get(value, f'offset {value}')}"
    if operation == RETURN:
        return f"return {answer(value)}"
    if operation == JUMP:
        return f"go to {place + 1 + value}"
    shown = str(value) if value < 4096 else hex(value)
    return f"if {_COMPARES[operation]} {shown} go to {place + 1 + yes}, else {place + 1 + no}"


def answer(value: int) -> str:
    """The meaning of a return value: allow, kill, or the name of an error."""
    if value in (ALLOW, KILL_PROCESS):
        return "allow" if value == ALLOW else "kill"
    number = value & 0xFFFF
    return errno.errorcode.get(number, str(number)) if value == refuse(number) else hex(value)


def _notes(code: Code, machine: str, checks: Sequence[Check]) -> dict[int, str]:
    arrivals: dict[int, list[str]] = {}
    table = TABLES[machine]
    for name, number in sorted(table.items(), key=lambda item: item[1]):
        arrivals.setdefault(_decided(code, number, AUDIT_ARCH[machine]), []).append(name)
    notes: dict[int, str] = {}
    for place, names in arrivals.items():
        if code[place][0] == LOAD:
            notes |= _check_notes(code, place, names[0], checks)
        else:
            notes[place] = _reasons(names, code[place][3])
    for place, (operation, _yes, _no, value) in enumerate(code):
        if operation == RETURN and place not in notes:
            if value == KILL_PROCESS:
                notes[place] = "another instruction set: its numbers mean other calls"
            elif value == refuse(errno.ENOSYS):
                notes[place] = "numbers that were not reviewed"
    return notes


def _decided(code: Code, number: int, arch: int) -> int:
    """The instruction at which the filter returns for this call, or first reads an argument."""
    place, word = 0, 0
    while True:
        operation, yes, no, value = code[place]
        if operation == RETURN or (operation == LOAD and value not in (NUMBER, ARCH)):
            return place
        place += 1
        if operation == LOAD:
            word = number if value == NUMBER else arch
        elif operation == JUMP:
            place += value
        else:
            place += yes if {JEQ: word == value, JGE: word >= value, JSET: bool(word & value)}[operation] else no


def _reasons(names: Sequence[str], value: int) -> str:
    if value == ALLOW:
        return " ".join(names)
    return "; ".join(f"{' '.join(found)}: {reason}" for reason, found in _by_reason(names))


def _by_reason(names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    reasons = {
        name: reason for listed, _error, reason in (*REFUSED, EXEC_REFUSED, WATCH_REFUSED) for name in listed.split()
    }
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(reasons.get(name, "not reviewed"), []).append(name)
    yield from found.items()


def _check_notes(code: Code, place: int, name: str, all_checks: Sequence[Check]) -> dict[int, str]:
    """The notes of the instructions that decide one call by its arguments, up to the one that allows it."""
    checks: Iterator[Check] = (check for check in all_checks if name in check.names.split())
    notes = {place: name}
    while code[place] != (RETURN, 0, 0, ALLOW):
        if code[place][0] == RETURN:
            notes[place] = f"{name}: {next(checks).reason}"
        place += 1
    notes[place] = name
    return notes
