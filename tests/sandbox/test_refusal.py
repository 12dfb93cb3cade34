"""Wrong arguments are refused with the near name, by the exception that the embedding program chooses."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from toolcell_sandbox.errors import named, refusal, refusing, unknown


@named
def measure(width: int, *, height: int = 1) -> int:
    return width * height


@refusing
@dataclass(frozen=True)
class Shape:
    width: int
    height: int = 1

    def __post_init__(self) -> None:
        if self.width < 0:
            raise ValueError(f"Shape.width is below 0: {self.width}.")


def test_what_fits_is_called() -> None:
    assert measure(2, height=3) == 6 and Shape(2).height == 1 and measure.__name__ == "measure"


def test_an_unknown_argument_is_refused_with_the_near_name_or_all() -> None:
    with pytest.raises(ValueError, match=r"^measure takes no 'heigth'\. Did you mean 'height'\?$"):
        measure(2, heigth=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"^Shape takes no 'zzz'\. There are: width, height\.$"):
        Shape(2, zzz=3)  # type: ignore[call-arg]
    assert unknown("f", "a", ["b"]) == "f takes no 'a'. There are: b."


def test_a_missing_argument_is_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"^measure: missing a required argument: 'width'\. It takes: width, height"):
        measure()  # type: ignore[call-arg]


def test_a_wrong_value_is_refused_without_the_trace_of_the_check() -> None:
    with pytest.raises(ValueError, match=r"^Shape\.width is below 0: -1\.$") as refused:
        Shape(-1)
    assert refused.value.__suppress_context__


def test_a_type_error_of_the_function_itself_is_not_taken_for_a_wrong_argument() -> None:
    @named
    def add(a: object) -> object:
        return a + 1  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        add(None)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_async_function_refuses_when_it_is_awaited(anyio_backend: str) -> None:
    @named
    async def later(a: int) -> int:
        return a

    assert await later(1) == 1
    waiting = later(b=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"later takes no 'b'"):
        await waiting


def test_a_program_may_choose_the_class_of_the_exception() -> None:
    code = """
from toolcell_sandbox.errors import refusal, refuse_with
class Mine(ValueError): pass
assert type(refusal("no")) is ValueError
refuse_with(Mine)
assert type(refusal("no")) is Mine and str(refusal("no")) == "no"
"""
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    assert isinstance(refusal("no"), ValueError)
