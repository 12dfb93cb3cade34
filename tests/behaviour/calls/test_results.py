"""The results of calls in real cells: outputs and their schema, blocks, artifacts, and long outputs."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests import misbehaving

from toolcell import (
    Artifact,
    Capability,
    ExecutionError,
    Pending,
    ProtocolViolation,
    Session,
    ToolContext,
    ToolDefinitionError,
    ToolFailure,
    ToolResult,
    base_tools,
    tool,
)
from toolcell.session import core_of
from toolcell.supervisor import runtime_of
from toolcell_tools import ImageBlock, TextBlock

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
LINES = 30_000


@dataclass
class Row:
    """One row."""

    id: int
    name: str


class Table(BaseModel):
    """Rows."""

    rows: list[Row]


def table(ids: list[int]) -> Table:
    """A table of rows with these ids."""
    return Table(rows=[Row(id, "x") for id in ids])


def wrong_table(ctx: ToolContext) -> Table:
    """Return an invalid value that is declared as a table."""
    ctx.values["seen"] = 1
    assert ctx.writer is not None
    ctx.writer.write_text("made.txt", "made")
    return {"rows": [{"id": 1, "name": "x"}, {"id": "two", "name": "x"}]}  # type: ignore[return-value]


def measured(value: Any) -> ToolResult:
    """Return a number, with a picture beside it."""
    return ToolResult(
        output=value,
        content=[TextBlock(text="a note"), ImageBlock.from_bytes(b"png", "image/png")],
        artifacts=[Artifact.from_bytes("plot.png", b"png", "image/png")],
    )


def lines(count: int, structured: bool = False) -> Any:
    """Return `count` lines."""
    numbered = [f"line {number}" for number in range(1, count + 1)]
    return {"lines": numbered} if structured else "\n".join(numbered)


def claim_a_file(path: str) -> int:
    """Send a result whose artifact names a file of the supervisor's machine."""
    payload = {"output": 1, "display": "", "content": [], "values": {}}
    artifact = {"path": "a", "kind": "output", "uri": f"file://{path}"}
    misbehaving.write_frames(misbehaving.frame_of(16, misbehaving.call_number(), payload | {"artifacts": [artifact]}))
    return 2


def claim_a_picture() -> int:
    """Send a result whose picture has invalid data."""
    payload = {"output": 1, "display": "", "artifacts": [], "values": {}}
    block = {"type": "image", "data": "no base64", "mime_type": "image/png"}
    misbehaving.write_frames(misbehaving.frame_of(16, misbehaving.call_number(), payload | {"content": [block]}))
    return 2


def claim_bytes(part: str) -> int:
    """Send a result with bytes in this part, which JSON cannot represent."""
    payload: dict[str, Any] = {"output": None, "display": "", "values": {}} | {part: {"raw": b"\xff"}}
    misbehaving.write_frames(misbehaving.frame_of(16, misbehaving.call_number(), payload))
    return 2


def picture(ctx: ToolContext) -> dict[str, bytes]:
    """Return bytes, and keep some in the session."""
    ctx.values["seen"] = b"\xff"
    return {"png": b"\x89PNG"}


def say(text: str, times: int, display: str | None) -> Any:
    """Return the text `times` times, with or without a separate display."""
    return text * times if display is None else ToolResult(output=text * times, display=display)


def claim_no_display(output: Any) -> int:
    """Send a result without a display."""
    misbehaving.write_frames(misbehaving.frame_of(16, misbehaving.call_number(), {"output": output}))
    return 2


def lead_away(ctx: ToolContext, target: str) -> str:
    """Put a link at the path to which the supervisor writes long outputs."""
    os.symlink(target, ctx.workspace_root / ".toolcell")
    return "done"


def start_job(ctx: ToolContext, name: str) -> Pending:
    """Start a job."""
    (ctx.workspace_root / f"{name}-1").write_text("queued")
    return Pending(f"{name}-1", "queued", "Ask job_status in a minute.")


def job_status(ctx: ToolContext, handle_id: str) -> Pending | str:
    """Return the progress of a job."""
    if not ctx.workspace.exists(handle_id):
        raise ToolFailure(f"there is no job {handle_id!r}")
    status = ctx.workspace.read_text(handle_id)
    return "the job is done" if status == "done" else Pending(handle_id, status)


WRITE = {Capability.WRITE}
TOOLS: list[Any] = [
    table,
    tool(wrong_table, needs=WRITE),
    tool(measured, output_schema={"type": "integer", "minimum": 0}),
    lines,
    tool(start_job, needs=WRITE, long_running=True),
    tool(job_status, needs={Capability.READ}),
    claim_a_file,
    claim_a_picture,
    claim_bytes,
    picture,
    say,
    claim_no_display,
    tool(lead_away, needs=WRITE),
    misbehaving.look_around,
    *base_tools(),
]

# -- displays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "times", "display", "shown"),
    [
        ("é", 3, None, "ééé"),
        ("", 0, None, ""),
        ("x", 64_000, None, "x" * 64_000),
        ("x", 64_001, None, "x" * 63_999 + "…"),
        ("é", 3, "an echo", "an echo"),
        ("é", 3, "", ""),
        ("x", 64_001, "long", "long"),
    ],
)
async def test_a_text_is_its_own_display_up_to_a_bound_unless_the_tool_gives_one(
    text: str, times: int, display: str | None, shown: str, main: Session
) -> None:
    result = await main.call("say", {"text": text, "times": times, "display": display})
    assert (result.unwrap(), result.display) == (text * times, shown)


@pytest.mark.parametrize("output", [1, None, {"a": 1}, ["x"]])
async def test_what_is_no_text_is_no_display(output: Any, main: Session) -> None:
    result = await main.call("claim_no_display", {"output": output})
    assert result.error is not None and result.error.kind == "protocol_violation"
    assert "display is a string" in result.error.message


# -- against the output schema -----------------------------------------------------------------------------------------


async def test_an_output_that_fits_its_schema_is_passed_on(main: Session) -> None:
    result = await main.call("table", {"ids": [1, 2]})
    assert result.unwrap() == {"rows": [{"id": 1, "name": "x"}, {"id": 2, "name": "x"}]}
    assert (await main.call("measured", {"value": 3})).output == 3


async def test_an_output_that_does_not_is_an_error_that_says_where(main: Session) -> None:
    result = await main.call("wrong_table")
    assert isinstance(result.error, ExecutionError) and not result.error.retryable
    assert "'wrong_table'" in result.error.message
    assert "allow: rows.1.id: must be an integer" in result.error.message
    assert result.error.data == {"path": "$.rows[1].id"}
    assert (result.output, result.display, result.content) == (None, "", [])
    assert [artifact.path for artifact in result.artifacts] == ["made.txt"]  # it was made all the same
    assert main.values == {} and result.values == {}
    assert result.usage.wall_s > 0 and core_of(main).services.journal is not None


@pytest.mark.parametrize("value", [-1, "3", None, 1.5, [1]])
async def test_a_schema_that_was_given_counts_as_one_that_was_derived(main: Session, value: Any) -> None:
    error = (await main.call("measured", {"value": value})).error
    assert isinstance(error, ExecutionError) and error.data == {"path": "$"}


async def test_an_output_schema_that_leads_elsewhere_is_refused_where_it_is_written() -> None:
    with pytest.raises(ToolDefinitionError, match=r"output_schema refers to .*Nothing is fetched"):
        tool(lines, output_schema={"$ref": "https://example.com/schema.json"})


# -- what is pending ---------------------------------------------------------------------------------------------------


async def test_work_that_goes_on_is_asked_after_by_another_tool_until_it_is_done(main: Session) -> None:
    """An outside process does the work: here the test, which writes the status file."""
    result = await main.call("start_job", {"name": "build"})
    assert result.pending == Pending("build-1", "queued", "Ask job_status in a minute.")
    seen: list[str] = []
    for status in ("running", "running", "done"):
        (main.workspace / "build-1").write_text(status)
        assert result.pending is not None
        result = await main.call("job_status", {"handle_id": result.pending.handle_id})
        seen.append(result.pending.status if result.pending is not None else result.unwrap())
    assert seen == ["running", "running", "the job is done"]
    unknown = await main.call("job_status", {"handle_id": "build-2"})
    assert isinstance(unknown.error, ExecutionError) and "no job" in unknown.error.message


# -- blocks and artifacts ----------------------------------------------------------------------------------------------


async def test_blocks_and_artifacts_come_out_as_they_went_in(main: Session) -> None:
    result = await main.call("measured", {"value": 7})
    assert result.content == [TextBlock(text="a note"), ImageBlock.from_bytes(b"png", "image/png")]
    assert result.artifacts[0].read() == b"png"
    assert result.for_model() == "7\na note\n[image, image/png, 3 bytes]"
    assert ToolResult.parse(result.model_dump_json()) == result


async def test_bytes_that_a_tool_returns_are_base64_in_the_result_and_survive_json(main: Session) -> None:
    result = await main.call("picture", {})
    assert result.unwrap() == {"png": {"base64": "iVBORw==", "size": 4}}
    assert result.values == {"seen": {"base64": "/w==", "size": 1}}
    assert ToolResult.model_validate_json(result.model_dump_json()) == result


@pytest.mark.parametrize("part", ["output", "values"])
async def test_a_cell_that_sends_bytes_past_the_encoder_broke_the_protocol(main: Session, part: str) -> None:
    result = await main.call("claim_bytes", {"part": part})
    assert isinstance(result.error, ProtocolViolation) and "JSON has none" in result.error.message
    assert ToolResult.parse(result.model_dump_json()) == result


@pytest.mark.parametrize(("name", "args"), [("claim_a_file", {"path": "/etc/passwd"}), ("claim_a_picture", {})])
async def test_a_cell_that_claims_what_it_may_not_broke_the_protocol(main: Session, name: str, args: Any) -> None:
    result = await main.call(name, args)
    assert isinstance(result.error, ProtocolViolation)
    assert result.artifacts == [] and result.content == []


# -- outputs too long for a model --------------------------------------------------------------------------------------


async def test_a_long_output_is_whole_in_the_workspace_and_the_model_reads_on_there(
    main: Session, workspace: Path
) -> None:
    result = await main.call("lines", {"count": LINES})
    (artifact,) = result.artifacts
    assert (artifact.kind, artifact.media_type) == ("output", "text/plain")
    assert artifact.read().decode() == result.output == (workspace / artifact.path).read_text()
    shown = result.for_model()
    assert f"of {len(result.encoded()):,} bytes" in shown
    assert f"the rest is artifact '{artifact.path}', in the workspace" in shown
    read = await main.call("read", {"path": artifact.path, "offset": LINES - 1})
    assert read.unwrap()["content"] == f"{LINES - 1}\tline {LINES - 1}\n{LINES}\tline {LINES}"
    assert (workspace / ".toolcell/.gitignore").read_text() == "*\n"


async def test_a_long_output_that_is_no_text_is_written_in_lines_too(main: Session) -> None:
    result = await main.call("lines", {"count": LINES, "structured": True})
    (artifact,) = result.artifacts
    assert artifact.media_type == "application/json" and artifact.path.endswith(".json")
    read = await main.call("read", {"path": artifact.path, "offset": LINES, "limit": 1})
    assert read.unwrap()["content"].endswith(f'"line {LINES - 2}",')


async def test_an_output_that_is_not_too_long_is_not_written(main: Session, workspace: Path) -> None:
    assert (await main.call("lines", {"count": 100})).artifacts == []
    assert os.listdir(workspace) == []


async def test_each_long_output_is_in_the_workspace_not_the_first_alone(main: Session, workspace: Path) -> None:
    for _ in range(2):
        (artifact,) = (await main.call("lines", {"count": LINES})).artifacts
        assert artifact.kind == "output" and (workspace / artifact.path).is_file()
    assert len(list((workspace / ".toolcell/outputs").iterdir())) == 2


async def test_a_session_that_writes_nothing_has_it_kept_by_the_supervisor(main: Session, workspace: Path) -> None:
    worker = await main.open_child("worker")
    result = await worker.call("lines", {"count": LINES})
    (artifact,) = result.artifacts
    assert artifact.kind == "stored" and artifact.read().decode() == result.output
    assert "with the program that runs this session" in result.for_model()
    assert os.listdir(workspace) == []
    folder = Path((artifact.uri or "").removeprefix("file://")).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_link_in_the_way_leads_nowhere(main: Session, workspace: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert (await main.call("lead_away", {"target": str(elsewhere)})).output == "done"
    result = await main.call("lines", {"count": LINES})
    (artifact,) = result.artifacts
    assert artifact.kind == "stored" and artifact.read().decode() == result.output
    assert os.listdir(elsewhere) == [] and os.listdir(workspace) == [".toolcell"]


async def test_an_artifact_is_read_through_no_link(main: Session, workspace: Path, tmp_path: Path) -> None:
    (artifact,) = (await main.call("lines", {"count": LINES})).artifacts
    assert artifact.read()
    (workspace / ".toolcell").rename(tmp_path / "elsewhere")
    (workspace / ".toolcell").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        artifact.read()


async def test_a_link_above_the_workspace_leads_nowhere_either(main: Session, workspace: Path, tmp_path: Path) -> None:
    (workspace / "a/b").mkdir(parents=True)
    (tmp_path / "elsewhere/b").mkdir(parents=True)
    (workspace / "a").rename(workspace / "was")
    (workspace / "a").symlink_to(tmp_path / "elsewhere")
    long = ToolResult(output="x" * 200_000)
    spilled = await core_of(main).services.overflow.spilled(long, workspace / "a/b")
    assert [one.kind for one in spilled.artifacts] == ["stored"] and not list((tmp_path / "elsewhere/b").iterdir())


async def test_the_session_values_stay_small_whatever_calls_leave_in_them(supervise: Any, workspace: Path) -> None:
    @tool
    def grow(ctx: ToolContext, key: str) -> str:
        """Store a value, and forget the others."""
        ctx.values.clear()
        ctx.values[key] = "x" * 40_000
        return "done"

    async with supervise([grow]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        assert (await session.call("grow", {"key": "a"})).error is None
        error = (await session.call("grow", {"key": "b"})).error
        assert isinstance(error, ExecutionError) and "65,536" in error.message
        assert list(session.values) == ["a"] and (await session.call("grow", {"key": "a"})).error is None


async def test_a_flood_of_artifacts_or_blocks_is_refused_unread(supervise: Any, workspace: Path) -> None:
    @tool
    def many(what: str) -> ToolResult:
        """Return too many blocks, or too many artifacts."""
        if what == "content":
            return ToolResult(content=[TextBlock(text="")] * 10_001)
        return ToolResult(artifacts=[Artifact(str(number), "made") for number in range(10_001)])

    @tool
    def forged(what: str) -> str:
        """Send an invalid result."""
        from toolcell.runner.link import Link

        def lie(self: Link, message: Any) -> None:
            real(self, message._replace(payload={**message.payload, what: [0] * 10_001}))

        real = Link.send
        Link.send = lie  # type: ignore[method-assign, assignment]
        return "done"

    async with supervise([many, forged]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for what in ("content", "artifacts"):
            error = (await session.call("many", {"what": what})).error
            assert error is not None and "at most 10,000" in error.message
            broke = (await session.call("forged", {"what": what})).error
            assert isinstance(broke, ProtocolViolation) and f"{what} is a list of at most 10,000" in broke.message


async def test_the_store_goes_with_the_supervisor_and_its_size_is_bounded(supervise: Any, workspace: Path) -> None:
    async with supervise([lines], model_bytes=10) as supervisor:
        runtime_of(supervisor).overflow._room = 1_000  # of 512 MiB
        session = await supervisor.open_session("worker", workspace=workspace)
        artifacts = [(await session.call("lines", {"count": 40})).artifacts[0] for _ in range(5)]
        there = [Path((artifact.uri or "").removeprefix("file://")) for artifact in artifacts]
        assert [file.exists() for file in there] == [False, False, True, True, True]
        assert artifacts[-1].read().startswith(b"line 1\n")
    assert not there[-1].parent.exists()
    with pytest.raises(FileNotFoundError):
        artifacts[-1].read()


def seen(ctx: ToolContext) -> dict[str, Any]:
    """Return the values of the session."""
    return dict(ctx.values)


async def test_values_that_are_assigned_anew_are_those_of_the_next_call(supervise: Any, workspace: Path) -> None:
    async with supervise([seen]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("seen")).unwrap() == {}
        session.values = {"x": 1}
        assert (await session.call("seen")).unwrap() == {"x": 1}


@tool
def shows(display: str) -> ToolResult:
    """Return a display."""
    return ToolResult(output=1, display=display)


@tool
def says(text: str) -> str:
    """Return a text."""
    return text


async def test_a_display_has_no_characters_that_control_a_terminal(supervise: Any, workspace: Path) -> None:
    """Such as those in the name of a file. The output for the model is as the tool returned it."""
    hostile = "a\x1b]0;owned\x07\r\n\tb\x9b2J\u202ec"
    plain = "a\\x1b]0;owned\\x07\\r\n\tb\\x9b2J\\u202ec"
    async with supervise([shows, says]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        assert (await session.call("shows", {"display": hostile})).display == plain
        said = await session.call("says", {"text": hostile})
        assert (said.output, said.display) == (hostile, plain)
        long = await session.call("shows", {"display": "\x00" * 1_000_000})
        assert long.display == "\\x00" * 64_000 + " [… 936,000 more characters …]"
