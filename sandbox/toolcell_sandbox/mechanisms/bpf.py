"""A small assembler for classic BPF, as used by seccomp(2)."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from toolcell_sandbox.errors import SandboxError

_LOAD, _JEQ, _JGE, _JSET, _JA, _RET = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
_INSTRUCTION = struct.Struct("=HBBI")
MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS

NUMBER, ARCH = 0, 4  # offsets in struct seccomp_data

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000


def refuse(errno: int) -> int:
    """The return value that makes the system call fail with `errno`."""
    return 0x00050000 | errno


def low_word(argument: int) -> int:
    """Offset of the low 32 bits of an argument. The kernel reads `int` arguments from these bits only.

    A comparison of all 64 bits would not treat 0x1_0000_0002 as 2 (CVE-2019-10063).
    """
    return 16 + 8 * argument


def high_word(argument: int) -> int:
    """Offset of the high 32 bits of an argument, for pointers and lengths."""
    return low_word(argument) + 4


@dataclass(frozen=True, slots=True)
class BpfLoad:
    """Load 32 bits of seccomp_data."""

    offset: int


@dataclass(frozen=True, slots=True)
class Return:
    """Return this value."""

    value: int


@dataclass(frozen=True, slots=True)
class Label:
    """A jump target."""

    name: str


@dataclass(frozen=True, slots=True)
class Jump:
    """Compare the loaded word: "==", ">=" or "&" (any bit set). Without a label, a branch falls through."""

    operator: str
    value: int
    yes: str | None = None
    no: str | None = None


Instruction = BpfLoad | Return | Label | Jump
_OPERATORS = {"==": _JEQ, ">=": _JGE, "&": _JSET}


def assemble(instructions: Sequence[Instruction]) -> bytes:
    """The filter's bytes. A conditional jump reaches 255 instructions; farther targets get a long jump."""
    long: set[int] = set()
    while True:
        places, size = _places(instructions, long)
        far = {
            index
            for index, each in enumerate(instructions)
            if isinstance(each, Jump)
            and index not in long
            and any(_distance(places, index, label, 1) > 255 for label in (each.yes, each.no))
        }
        if not far:
            break
        long |= far
    if size > MAX_INSTRUCTIONS:
        raise SandboxError(f"The seccomp filter is too long: {size} instructions", step="assemble", mechanism="seccomp")
    return b"".join(_encode(each, index, places, index in long) for index, each in enumerate(instructions))


def _places(instructions: Sequence[Instruction], long: set[int]) -> tuple[dict[str | int, int], int]:
    places: dict[str | int, int] = {}
    at = 0
    for index, each in enumerate(instructions):
        places[index] = at
        if isinstance(each, Label):
            places[each.name] = at
        else:
            at += 3 if index in long else 1
    return places, at


def _distance(places: dict[str | int, int], index: int, label: str | None, size: int) -> int:
    if label is None:
        return 0
    distance = places[label] - (places[index] + size)
    if distance < 0:
        raise SandboxError(f"A seccomp filter cannot jump backwards: {label}", step="assemble", mechanism="seccomp")
    return distance


def _encode(each: Instruction, index: int, places: dict[str | int, int], is_long: bool) -> bytes:
    if isinstance(each, Label):
        return b""
    if isinstance(each, BpfLoad):
        return _INSTRUCTION.pack(_LOAD, 0, 0, each.offset)
    if isinstance(each, Return):
        return _INSTRUCTION.pack(_RET, 0, 0, each.value)
    code = _OPERATORS[each.operator]
    if not is_long:
        yes, no = _distance(places, index, each.yes, 1), _distance(places, index, each.no, 1)
        return _INSTRUCTION.pack(code, yes, no, each.value)
    yes = _distance(places, index, each.yes, 2) if each.yes else 1
    no = _distance(places, index, each.no, 3)
    return b"".join(
        (
            _INSTRUCTION.pack(code, 0, 1, each.value),
            _INSTRUCTION.pack(_JA, 0, 0, yes),
            _INSTRUCTION.pack(_JA, 0, 0, no),
        )
    )
