"""Results and errors: round trips, what the model gets, what `unwrap` does."""

import pickle
from typing import Any, get_args

import pydantic
import pytest

from toolcell_tools import (
    Artifact,
    AudioBlock,
    Cancelled,
    Capability,
    CapturedOutput,
    Crashed,
    ErrorBase,
    ExecutionError,
    ImageBlock,
    LimitExceeded,
    MissingCapability,
    Overloaded,
    PermissionDenied,
    PermissionTier,
    ProtocolViolation,
    ResourceBlock,
    SandboxSummary,
    SandboxUnavailable,
    TextBlock,
    Timeout,
    ToolError,
    ToolFailed,
    ToolFailure,
    ToolResult,
    UnknownTool,
    Usage,
    ValidationError,
    parse_error,
)

ERRORS: list[tuple[ErrorBase, str, bool]] = [
    (ValidationError(message="m", field="a.b", parameters_schema={"type": "object"}), "validation", True),
    (ExecutionError(message="m", data={"a": [1]}), "execution", False),
    (
        PermissionDenied(message="m", tier=PermissionTier.SYSTEM, reason="r", missing=(Capability.WRITE,)),
        "permission_denied",
        False,
    ),
    (Timeout(message="m", elapsed=1.5), "timeout", True),
    (UnknownTool(message="m", suggestions=("read",)), "unknown_tool", False),
    (Crashed(message="m", signal=11), "crashed", False),
    (LimitExceeded(message="m", resource="memory", limit=1024), "limit_exceeded", False),
    (Cancelled(message="m"), "cancelled", False),
    (ProtocolViolation(message="m"), "protocol_violation", False),
    (Overloaded(message="m"), "overloaded", True),
    (SandboxUnavailable(message="m", mechanism="landlock", cure="boot"), "sandbox_unavailable", False),
]


@pytest.mark.parametrize(("error", "kind", "retryable"), ERRORS)
def test_an_error_survives_json_and_python_and_says_whether_to_retry(error: Any, kind: str, retryable: bool) -> None:
    assert (error.kind, error.retryable) == (kind, retryable)
    assert parse_error(error.model_dump()) == error
    assert parse_error(error.model_dump(mode="json")) == error


def test_every_member_of_the_union_is_tested_and_frozen() -> None:
    members = set(get_args(get_args(ToolError)[0]))
    assert members == {type(error) for error, _, _ in ERRORS}
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        ERRORS[0][0].message = "other"


def test_at_most_three_suggestions() -> None:
    with pytest.raises(pydantic.ValidationError):
        UnknownTool(message="m", suggestions=("a", "b", "c", "d"))


def full_result() -> ToolResult:
    return ToolResult(
        output={"a": [1, None]},
        display="d",
        artifacts=[Artifact("a", "created", "sha256:00", 1)],
        content=[
            TextBlock(text="t"),
            ImageBlock.from_bytes(b"i", "image/png"),
            AudioBlock.from_bytes(b"a", "audio/wav"),
            ResourceBlock(uri="file:///a"),
        ],
        error=Timeout(message="m", elapsed=1),
        usage=Usage(wall_s=1.0, max_rss_bytes=5),
        call_id="c",
        tool="t",
        version="1.0.0",
        session_id="s",
        sandbox=SandboxSummary(on=("landlock",), allowed_missing=("cgroups",)),
        stdout=CapturedOutput(text="o", total_bytes=10, omitted_bytes=9),
        values={"k": "v"},
    )


def test_a_result_survives_json() -> None:
    result = full_result()
    assert ToolResult.model_validate_json(result.model_dump_json()) == result
    assert ToolResult.model_validate(result.model_dump()) == result
    assert pickle.loads(pickle.dumps(result)) == result


def test_build_makes_the_same_result_from_raw_parts() -> None:
    result = full_result()
    dumped = result.model_dump(mode="json")
    parts = {name: getattr(result, name) for name in ToolResult.model_fields}
    built = ToolResult.build(**(parts | {"artifacts": dumped["artifacts"], "content": dumped["content"]}))
    assert built == result
    assert built.model_dump_json() == result.model_dump_json()
    assert ToolResult.build() == ToolResult()


@pytest.mark.parametrize("lie", [{"artifacts": [{"path": 1}]}, {"content": [{"type": "exe"}]}, {"artifacts": ["a"]}])
def test_build_refuses_parts_that_a_cell_made_up(lie: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        ToolResult.build(**lie)


def test_media_blocks_hold_bytes() -> None:
    assert ImageBlock.from_bytes(b"\xff\x00", "image/png").to_bytes() == b"\xff\x00"


def test_the_model_gets_compact_json_of_the_output() -> None:
    assert ToolResult(output={"a": "ä", "n": None}).for_model() == '{"a":"ä","n":null}'
    assert ToolResult(output="text").for_model() == '"text"'
    assert ToolResult(output=[float("nan")]).for_model() == '["NaN"]'


def test_the_model_gets_the_error_if_there_is_one() -> None:
    result = ToolResult(error=ValidationError(message="m", field="a"))
    assert result.is_error
    assert result.for_model() == '{"error":{"message":"m","retryable":true,"kind":"validation","field":"a"}}'


def test_a_long_output_is_cut_in_the_middle_with_an_exact_account() -> None:
    text = ToolResult(output="x" * 8_313_002).for_model(20_000)
    head, note, tail = text.split("\n")
    assert note == "[… kept 20,000 of 8,313,004 bytes: the first 10,000 and the last 10,000 …]"
    assert (len(head), len(tail)) == (10_000, 10_000)


def test_an_output_of_just_the_limit_is_whole() -> None:
    assert ToolResult(output="x" * 18).for_model(20) == '"' + "x" * 18 + '"'
    assert "kept 20 of 21 bytes" in ToolResult(output="x" * 19).for_model(20)


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 11, 12, 13])
def test_a_cut_never_splits_a_character_and_counts_what_is_there(limit: int) -> None:
    text = ToolResult(output="🎈ä" * 100).for_model(limit)
    head, note, tail = text.split("\n")
    kept = len(head.encode()) + len(tail.encode())
    assert kept <= limit
    assert f"kept {kept:,} of 602 bytes" in note


def test_unwrap_gives_the_output_or_raises_with_the_error_in_it() -> None:
    assert ToolResult(output=3).unwrap() == 3
    error = ExecutionError(message="no such file")
    with pytest.raises(ToolFailed, match="execution: no such file") as caught:
        ToolResult(error=error).unwrap()
    assert caught.value.error is error
    assert pickle.loads(pickle.dumps(caught.value)).error == error


def test_the_raisables_cross_pickle_and_name_the_remedy() -> None:
    failure = pickle.loads(pickle.dumps(ToolFailure("m", {"a": 1})))
    assert (failure.message, failure.data) == ("m", {"a": 1})
    missing = pickle.loads(pickle.dumps(MissingCapability(Capability.READ)))
    assert missing.capability is Capability.READ
    assert "Add needs={Capability.READ} to the tool" in str(missing)
