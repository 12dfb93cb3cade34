"""The assembler of filters and their evaluation, against each other. `test_seccomp.py` has the filter of cells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bpf_evaluator import evaluate

from toolcell_sandbox import SandboxError
from toolcell_sandbox.mechanisms.bpf import (
    ALLOW,
    ARCH,
    KILL_PROCESS,
    MAX_INSTRUCTIONS,
    NUMBER,
    BpfLoad,
    Instruction,
    Jump,
    Label,
    Return,
    assemble,
    high_word,
    low_word,
    refuse,
)


@pytest.mark.parametrize("distance", [1, 254, 255, 256, 257, 1000])
@pytest.mark.parametrize("branch", ["yes", "no", "both"])
def test_a_jump_of_any_length_arrives(distance: int, branch: str) -> None:
    yes, no = ("far" if branch != "no" else None), ("far" if branch != "yes" else None)
    padding: list[Instruction] = [Return(1)] * distance
    code = assemble([BpfLoad(0), Jump("==", 7, yes=yes, no=no), *padding, Label("far"), Return(2)])
    assert evaluate(code, 7, 0) == (2 if branch != "no" else 1)
    assert evaluate(code, 8, 0) == (2 if branch != "yes" else 1)


@given(st.sampled_from(["==", ">=", "&"]), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_comparison_is_of_unsigned_words(operator: str, word: int, value: int) -> None:
    code = assemble([BpfLoad(NUMBER), Jump(operator, value, no="no"), Return(1), Label("no"), Return(2)])
    holds = {"==": word == value, ">=": word >= value, "&": bool(word & value)}[operator]
    assert evaluate(code, word, 0) == (1 if holds else 2)


def test_the_words_of_an_argument_and_the_architecture_are_where_the_kernel_has_them() -> None:
    for argument in range(6):
        arguments = [0] * argument + [0x1_0000_0002]
        for offset, word in ((low_word(argument), 2), (high_word(argument), 1)):
            code = assemble([BpfLoad(offset), Jump("==", word, no="no"), Return(1), Label("no"), Return(2)])
            assert evaluate(code, 0, 0, arguments) == 1
    code = assemble([BpfLoad(ARCH), Jump("==", 0xC000003E, no="no"), Return(1), Label("no"), Return(2)])
    assert [evaluate(code, 0, arch) for arch in (0xC000003E, 0x40000003)] == [1, 2]


def test_the_answers_are_those_of_the_kernel() -> None:
    """SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS and SECCOMP_RET_ERRNO in linux/seccomp.h."""
    assert (ALLOW, KILL_PROCESS, refuse(38)) == (0x7FFF0000, 0x80000000, 0x00050026)


def test_a_jump_backwards_is_refused_because_the_kernel_refuses_it() -> None:
    with pytest.raises(SandboxError, match="cannot jump backwards: back"):
        assemble([Label("back"), BpfLoad(NUMBER), Jump("==", 1, yes="back"), Return(ALLOW)])


def test_a_filter_that_the_kernel_would_not_take_is_refused() -> None:
    longest: list[Instruction] = [Return(ALLOW)] * MAX_INSTRUCTIONS
    assert len(assemble(longest)) == 8 * MAX_INSTRUCTIONS
    with pytest.raises(SandboxError, match=f"too long: {MAX_INSTRUCTIONS + 1} instructions"):
        assemble([*longest, Return(ALLOW)])


def test_a_jump_that_becomes_long_may_make_another_one_long() -> None:
    code = assemble(
        [
            BpfLoad(NUMBER),
            Jump("==", 1, yes="far"),
            Jump("==", 2, yes="farther"),
            *[Return(9)] * 253,
            Label("far"),
            Return(1),
            *[Return(9)] * 2,
            Label("farther"),
            Return(2),
        ]
    )
    assert [evaluate(code, number, 0) for number in (1, 2, 3)] == [1, 2, 9]
