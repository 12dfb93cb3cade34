"""What is read from a function's signature without a schema."""

import functools
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Optional, Union

import pytest

from toolcell_tools import ToolContext, ToolDefinitionError
from toolcell_tools.signature import (
    MISSING,
    Parameter,
    context_parameter,
    is_async,
    is_generator,
    parameters,
    underlying,
)


def plain(a: int, b: str = "x") -> str:
    return b * a


async def later(a: int) -> int:
    return a


def lines() -> Iterator[str]:
    yield ""


async def alines() -> AsyncIterator[str]:
    yield ""


class Caller:
    def __call__(self, a: int) -> int:
        return a

    async def method(self, a: int) -> int:
        return a


@functools.wraps(later)
def wrapping(*arguments: Any) -> object:
    return later(*arguments)


@pytest.mark.parametrize(
    ("fn", "inside"),
    [
        (plain, plain),
        (functools.partial(functools.partial(plain, 1), b="y"), plain),
        (Caller().method, Caller.method),
        (Caller(), Caller.__call__),
        (wrapping, later),
        (functools.partial(wrapping, 1), later),
        (len, len),
    ],
    ids=["function", "partials", "method", "object", "wrapped", "partial of a wrapped one", "builtin"],
)
def test_the_plain_function_inside_is_found(fn: Callable[..., object], inside: object) -> None:
    assert underlying(fn) is inside


def test_what_a_call_itself_returns_says_whether_it_is_async() -> None:
    assert [is_async(fn) for fn in (later, functools.partial(later, 1), Caller().method)] == [True] * 3
    assert [is_async(fn) for fn in (plain, Caller(), wrapping, alines, len)] == [False] * 5
    assert [is_generator(fn) for fn in (lines, alines, functools.partial(lines))] == [True] * 3
    assert [is_generator(fn) for fn in (plain, later, len)] == [False] * 3


class OwnContext(ToolContext):
    """A subclass."""


@pytest.mark.parametrize(
    "annotation",
    [
        ToolContext,
        OwnContext,
        "ToolContext",
        "toolcell.ToolContext",
        "ToolContext | None",
        "Optional[ToolContext]",
        "'ToolContext'",
        ToolContext | None,
        Optional[ToolContext],  # noqa: UP045
        Union["ToolContext", None],
    ],
    ids=str,
)
def test_a_context_is_known_however_it_is_annotated(annotation: object) -> None:
    def takes(a: int, c: Any) -> None: ...

    takes.__annotations__["c"] = annotation
    assert context_parameter("takes", takes) == "c"


@pytest.mark.parametrize(
    "annotation", [int, "str", "list[ToolContext]", "ToolContexts", ToolContext | int, None], ids=str
)
def test_another_type_is_no_context(annotation: object) -> None:
    def takes(c: Any) -> ToolContext: ...  # type: ignore[empty-body]

    takes.__annotations__["c"] = annotation
    assert context_parameter("takes", takes) is None


def test_two_contexts_are_refused() -> None:
    def both(a: ToolContext, b: "ToolContext | None") -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"takes two contexts, 'a' and 'b'\. Keep one"):
        context_parameter("both", both)


def test_parameters_are_those_without_the_context_with_their_types_resolved() -> None:
    def takes(ctx: ToolContext, a: "int", *, b: "Annotated[str, 'words'] | None" = None) -> None: ...

    assert parameters("takes", takes, "ctx") == (
        Parameter("a", int, MISSING),
        Parameter("b", Annotated[str, "words"] | None, None),
    )


def test_a_type_of_the_surrounding_function_resolves_where_it_is_given() -> None:
    class Local: ...

    def takes(a: "Local") -> None: ...

    with pytest.raises(ToolDefinitionError, match="the type of 'a' is 'Local', and name 'Local' is not defined"):
        parameters("takes", takes, None)
    assert parameters("takes", takes, None, {"Local": Local})[0].annotation is Local


def test_a_function_without_a_readable_signature_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="no signature can be read"):
        parameters("kind", type, None)


def test_the_missing_default_is_itself_after_a_pickle() -> None:
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING
