"""An evaluator of seccomp filters, as the kernel computes them."""

import struct
from collections.abc import Sequence

_LOAD, _JEQ, _JGE, _JSET, _JA, _RET = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
_INSTRUCTION = struct.Struct("=HBBI")


def evaluate(program: bytes, number: int, arch: int, arguments: Sequence[int] = ()) -> int:
    """The filter's return value for a system call, computed as the kernel does."""
    padded = [argument & 0xFFFFFFFFFFFFFFFF for argument in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    code = list(_INSTRUCTION.iter_unpack(program))
    at, word = 0, 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        if operation == _RET:
            return int(value)
        if operation == _LOAD:
            (word,) = struct.unpack_from("<I", data, value)
        elif operation == _JA:
            at += value
        else:
            taken = {_JEQ: word == value, _JGE: word >= value, _JSET: word & value != 0}[operation]
            at += yes if taken else no
