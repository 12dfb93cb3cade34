"""Content blocks and artifacts: what they hold is what they say, and no more than they may."""

import os
from base64 import b64encode
from pathlib import Path
from typing import Any

import pydantic
import pytest
from pydantic import TypeAdapter

from toolcell_tools import Artifact, AudioBlock, Content, ImageBlock, ResourceBlock, TextBlock, Unencodable
from toolcell_tools.artifact import ArtifactLog, digest_of
from toolcell_tools.content import MAX_BLOCK_BYTES
from toolcell_tools.result import ToolResult
from toolcell_tools.returned import encode_return

BLOCK: TypeAdapter[Any] = TypeAdapter(Content)
PNG = b64encode(b"png").decode()


@pytest.mark.parametrize(
    "mime_type", ["image/png", "image/svg+xml", "IMAGE/PNG", 'image/x; charset=utf-8; note="a b"', "image/vnd.a-b.c"]
)
def test_a_mime_type_is_taken_as_it_is(mime_type: str) -> None:
    assert BLOCK.validate_python({"type": "image", "data": PNG, "mime_type": mime_type}).mime_type == mime_type


@pytest.mark.parametrize(
    "lie",
    [
        {"type": "image", "data": PNG, "mime_type": "png"},
        {"type": "image", "data": PNG, "mime_type": "image/png\nX-Header: 1"},
        {"type": "image", "data": PNG, "mime_type": "image/png\n"},
        {"type": "image", "data": PNG, "mime_type": "image/png; " + "a" * 300},
        {"type": "image", "data": PNG, "mime_type": "audio/wav"},
        {"type": "audio", "data": PNG, "mime_type": "image/png"},
        {"type": "image", "data": "not base64!", "mime_type": "image/png"},
        {"type": "image", "data": "ä", "mime_type": "image/png"},
        {"type": "image", "data": "cG5", "mime_type": "image/png"},
        {"type": "image", "data": PNG},
        {"type": "text"},
        {"type": "text", "text": "t", "colour": "red"},
        {"type": "resource", "uri": "no address"},
        {"type": "resource", "uri": "file:///a\nb"},
        {"type": "resource", "uri": "file:///a", "mime_type": "text"},
        {"type": "resource", "uri": "file:///a\n"},
        {"type": "program", "text": "t"},
        "text",
    ],
)
def test_a_block_that_is_not_what_it_says_is_refused(lie: Any) -> None:
    with pytest.raises(pydantic.ValidationError):
        BLOCK.validate_python(lie)


def test_a_block_has_a_size_at_most() -> None:
    assert len(ImageBlock.from_bytes(bytes(MAX_BLOCK_BYTES), "image/png").to_bytes()) == MAX_BLOCK_BYTES
    with pytest.raises(pydantic.ValidationError, match="at most"):
        ImageBlock.from_bytes(bytes(MAX_BLOCK_BYTES + 3), "image/png")
    with pytest.raises(pydantic.ValidationError, match="at most"):
        TextBlock(text="x" * (MAX_BLOCK_BYTES + 1))
    with pytest.raises(pydantic.ValidationError, match="at most"):
        ResourceBlock(uri="a:b", text="x" * (MAX_BLOCK_BYTES + 1))


def test_the_complaint_about_a_block_says_how_to_make_one() -> None:
    with pytest.raises(pydantic.ValidationError, match="make the block with from_bytes"):
        AudioBlock(data="?", mime_type="audio/wav")


def test_an_artifact_may_hold_its_content() -> None:
    artifact = Artifact.from_bytes("plot.png", b"png", "image/png")
    assert (artifact.kind, artifact.size, artifact.digest) == ("inline", 3, digest_of(b"png"))
    assert artifact.read() == b"png"
    sent = encode_return(ToolResult(artifacts=[artifact]))["artifacts"]
    assert ToolResult.build(artifacts=sent).artifacts == [artifact]


@pytest.mark.parametrize("part", [{"data": "?"}, {"data": "ä"}, {"digest": digest_of(b"gif")}, {"size": 4}])
def test_an_artifact_whose_content_is_not_what_it_says_is_refused(part: dict[str, Any]) -> None:
    honest = {"path": "a", "kind": "k", "data": PNG, "digest": digest_of(b"png"), "size": 3}
    assert ToolResult.build(artifacts=[honest]).artifacts[0].read() == b"png"
    with pytest.raises(pydantic.ValidationError, match="artifact 'a'"):
        ToolResult.build(artifacts=[honest | part])


def test_a_file_of_the_supervisor_is_read_as_long_as_it_is_the_one_that_was_written(tmp_path: Path) -> None:
    file, other = tmp_path / "a b#.txt", tmp_path / "other"
    for one in (file, other):
        one.write_bytes(b"text")
    artifact = Artifact("a", "output", digest_of(b"text"), 4, "text/plain", uri=file.as_uri())
    assert artifact.read() == b"text"
    file.write_bytes(b"fake")
    with pytest.raises(ValueError, match="not what its size and digest say"):
        artifact.read()
    file.write_bytes(b"longer")
    with pytest.raises(ValueError, match="not the one"):
        artifact.read()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="not the one"):
        artifact.read()
    file.unlink()
    file.symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        artifact.read()


@pytest.mark.parametrize("uri", [None, "https://example.com/a", "/etc/passwd"])
def test_an_artifact_without_content_says_where_to_look(uri: str | None) -> None:
    with pytest.raises(ValueError, match="Read it below the workspace"):
        Artifact("a", "created", size=4, uri=uri).read()


def test_a_tool_cannot_say_where_the_supervisor_keeps_something() -> None:
    with pytest.raises(Unencodable, match="supervisor's to set"):
        encode_return(ToolResult(artifacts=[Artifact("a", "output", uri="file:///etc/passwd")]))


def test_the_log_keeps_what_a_change_says_of_its_content() -> None:
    log = ArtifactLog()
    log.record(Artifact("b", "deleted"))
    assert log.record(Artifact("b", "created")).kind == "modified"
    log.record(Artifact("a", "created"))
    assert log.record(Artifact("a", "modified", "sha256:0", 1, "text/plain")) == Artifact(
        "a", "created", "sha256:0", 1, "text/plain"
    )
