"""The nine base tools, against real files, a real shell and handles in memory."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from toolcell_tools import (
    KIND_GRANTS,
    Capability,
    FetchedPage,
    MissingCapability,
    SessionKind,
    Tool,
    ToolContext,
    ToolFailure,
    ToolResult,
    base_tools,
    encode_return,
    tool,
)

TOOLS: dict[str, Tool[..., Any]] = {tool.name: tool for tool in base_tools()}
CONTRACT = {
    "read": ("read_only", {"read"}, set(), ["path", "offset", "limit"]),
    "write": ("workspace", {"write"}, set(), ["path", "content"]),
    "edit": ("workspace", {"read", "write"}, set(), ["path", "old_text", "new_text", "replace_all"]),
    "shell": ("system", {"write", "exec"}, {"net"}, ["command", "cwd", "timeout_s"]),
    "message": ("system", {"channel"}, set(), ["text"]),
    "memory_search": ("read_only", {"memory.read"}, set(), ["query", "limit"]),
    "memory_store": ("workspace", {"memory.write"}, set(), ["text", "kind", "tags"]),
    "web_search": ("read_only", {"web"}, set(), ["query", "limit"]),
    "web_fetch": ("read_only", {"web"}, set(), ["url", "max_bytes"]),
}


def call(ctx: ToolContext, name: str, **arguments: Any) -> ToolResult:
    """As the runtime does: validate, bind, call, encode."""
    tool = TOOLS[name]
    jsonschema.validate(arguments, tool.declaration.parameters_schema)
    result = tool(**tool.bind(arguments, ctx))
    return ToolResult.build(**encode_return(result))


def test_names_tiers_capabilities_and_arguments_are_those_of_the_contract() -> None:
    declared = {
        name: (one.tier.value, set(one.needs), set(one.uses), list(one.declaration.parameters_schema["properties"]))
        for name, one in TOOLS.items()
    }
    assert declared == CONTRACT


def test_a_worker_holds_what_four_of_them_need() -> None:
    grants = KIND_GRANTS[SessionKind.WORKER]
    usable = [name for name, one in TOOLS.items() if one.needs <= grants]
    assert usable == ["read", "memory_search", "web_search", "web_fetch"]


def test_every_argument_is_described_and_what_changes_things_is_sequential() -> None:
    for one in TOOLS.values():
        schema = one.declaration.parameters_schema
        assert all(part["description"] for part in schema["properties"].values()), one.name
        assert one.declaration.description
        reads = one.tier.value == "read_only"
        assert (one.declaration.annotations.read_only, one.declaration.annotations.sequential) == (reads, not reads)


def test_their_schemas_are_those_of_their_functions() -> None:
    for one in TOOLS.values():
        derived = tool(one.fn, name=one.name).declaration.parameters_schema
        assert one.declaration.parameters_schema == derived, one.name


def test_declaring_them_needs_neither_griffe_nor_jsonschema() -> None:
    code = (
        "import sys; from toolcell_tools import base_tools; base_tools();"
        "sys.exit({'griffe', 'jsonschema'} & {*sys.modules} != set())"
    )
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "arguments", "handle", "capability"),
    [
        ("write", {"path": "a", "content": ""}, "writer", Capability.WRITE),
        ("edit", {"path": "a", "old_text": "a", "new_text": ""}, "writer", Capability.WRITE),
        ("shell", {"command": "true"}, "shell", Capability.EXEC),
        ("message", {"text": "hi"}, "channel", Capability.CHANNEL),
        ("memory_search", {"query": "a"}, "memory", Capability.MEMORY_READ),
        ("memory_store", {"text": "a"}, "memory_writer", Capability.MEMORY_WRITE),
        ("web_search", {"query": "a"}, "web", Capability.WEB),
        ("web_fetch", {"url": "http://a"}, "web", Capability.WEB),
    ],
)
def test_without_its_handle_a_tool_says_what_is_missing(
    make_context: Any, name: str, arguments: dict[str, Any], handle: str, capability: Capability
) -> None:
    with pytest.raises(MissingCapability) as caught:
        call(make_context(**{handle: None}), name, **arguments)
    assert caught.value.capability is capability


def test_read_numbers_the_lines_and_says_how_to_read_on(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    result = call(ctx, "read", path="a.txt", offset=3, limit=2)
    assert result.output == {
        "path": "a.txt",
        "content": "3\tline 3\n4\tline 4",
        "start_line": 3,
        "end_line": 4,
        "total_lines": 10,
        "more": "6 lines are left; read on with offset=5",
    }
    assert result.display == "Read a.txt: lines 3 to 4 of 10"
    assert result.for_model().endswith('"more":"6 lines are left; read on with offset=5"}\n3\tline 3\n4\tline 4')
    assert "more" not in call(ctx, "read", path="a.txt").output


def test_read_stops_at_2000_lines_and_at_a_window_that_the_model_gets_whole(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "many").write_text("x\n" * 5_000)
    assert call(ctx, "read", path="many").output["end_line"] == 2_000
    (tmp_path / "wide").write_text(("y" * 999 + "\n") * 500)
    result = call(ctx, "read", path="wide")
    assert 50 < result.output["end_line"] < 100
    assert result.output["more"].endswith(f"read on with offset={result.output['end_line'] + 1}")
    assert "kept" not in result.for_model()


def test_read_cuts_a_very_long_line_and_counts_the_cut(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("z" * 3_000_000 + "\nnext")
    content = call(ctx, "read", path="long").output["content"].split("\n")
    assert content[0].endswith("z [… 2,992,000 bytes of this line left out …]")
    assert content[1] == "2\tnext"


@pytest.mark.parametrize(
    ("data", "content", "total"),
    [
        (b"", "", 0),
        (b"\n", "1\t", 1),
        (b"a\r\nb", "1\ta\n2\tb", 2),
        (b"\xef\xbb\xbfa\n", "1\ta", 1),
        (b"a\xffb", "1\ta\ufffdb", 1),
    ],
)
def test_read_shows_all_sorts_of_text(ctx: ToolContext, tmp_path: Path, data: bytes, content: str, total: int) -> None:
    (tmp_path / "a").write_bytes(data)
    output = call(ctx, "read", path="a").output
    assert (output["content"], output["total_lines"]) == (content, total)


def test_read_explains_what_it_cannot_read(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.py").write_text("1\n")
    (tmp_path / "bin").write_bytes(b"\x7fELF\0\0")
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"path": "d"}, r"'d' is a directory; read one of its files: d/x\.py"),
        ({"path": "bin"}, "'bin' is a binary file of 6 bytes"),
        ({"path": "none"}, "'none': no such file"),
        ({"path": "../x"}, "outside the workspace"),
        ({"path": "d/x.py", "offset": 2}, "has 1 line; offset 2 is past its end"),
    ]
    for arguments, message in refusals:
        with pytest.raises(ToolFailure, match=message):
            call(ctx, "read", **arguments)


def test_write_makes_then_replaces(ctx: ToolContext, tmp_path: Path) -> None:
    first = call(ctx, "write", path="d/a.txt", content="one\ntwo")
    assert first.output == {"path": "d/a.txt", "action": "created", "bytes": 7, "lines": 2}
    assert first.display == "Created d/a.txt (2 lines)"
    assert [(one.path, one.kind, one.size) for one in first.artifacts] == [("d/a.txt", "created", 7)]
    assert call(ctx, "write", path="d/a.txt", content="").display.startswith("Created")  # in the same call: net effect
    (tmp_path / "b").write_text("x")
    assert call(ctx, "write", path="b", content="y\n").output["action"] == "modified"


def test_edit_replaces_the_only_place_and_shows_a_diff(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    result = call(ctx, "edit", path="a.py", old_text="line 10\nline 11", new_text="ten\neleven\nand more")
    assert result.output == {
        "path": "a.py",
        "replacements": 1,
        "diff": "--- a/a.py\n+++ b/a.py\n@@ -7,8 +7,9 @@\n line 7\n line 8\n line 9\n-line 10\n-line 11\n"
        "+ten\n+eleven\n+and more\n line 12\n line 13\n line 14",
    }
    assert (result.display, result.artifacts[0].kind) == ("Edited a.py in 1 place", "modified")
    assert "line 9\nten\neleven\nand more\nline 12\n" in (tmp_path / "a.py").read_text()


@pytest.mark.parametrize("new", ["", "x", "x\ny\n", "longer\n\n\nthan"])
@pytest.mark.parametrize("old", ["b", "b\n", "a\nb", "a\nb\nc", "\n"])
@pytest.mark.parametrize("text", ["a\nb\nc\n", "a\nb\nc", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\na\nb\nc"])
def test_the_diff_of_an_edit_is_one_that_patch_can_apply(
    ctx: ToolContext, tmp_path: Path, text: str, old: str, new: str
) -> None:
    (tmp_path / "f").write_text(text)
    diff = call(ctx, "edit", path="f", old_text=old, new_text=new, replace_all=True).output["diff"]
    assert applied(text, diff) == text.replace(old, new)


def applied(text: str, diff: str) -> str:
    """`text` with the hunks of `diff`, whose line numbers must be right, applied."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    marked = re.sub(r"\n\\ No newline at end of file", "", diff).split("\n")[2:]
    out: list[str] = []
    at = 0
    ends = iter(_ended(diff))
    for line in marked:
        if line.startswith("@@"):
            old, new = (part[1:].split(",") for part in line.split()[1:3])
            goal = int(old[0]) - (old[1:] != ["0"])
            out += lines[at:goal]
            at = goal
            assert int(new[0]) == len(out) + (new[1:] != ["0"]), diff
            continue
        body = line[1:] + ("\n" if next(ends) else "")
        if not line.startswith("+"):
            assert lines[at] == body, diff
            at += 1
        if not line.startswith("-"):
            out.append(body)
    return "".join(out + lines[at:])


def _ended(diff: str) -> list[bool]:
    """For each line of the hunks' bodies, whether it ends with a newline."""
    flags: list[bool] = []
    for line in diff.split("\n")[2:]:
        if line.startswith("\\"):
            flags[-1] = False
        elif not line.startswith("@@"):
            flags.append(True)
    return flags


def test_edit_explains_what_it_does_not_find(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n")
    for old, message in [
        ("\treturn a + b", r"There, line 2 is '    return a \+ b', and old_text has '\\treturn a \+ b'"),
        ("def addd(a, b):", r"begins at line 1. There, line 1 is 'def add\(a, b\):', and old_text has 'def addd"),
        ("qqqqqqqqqqqqqq", "Nothing in it is close"),
        ("return a", r"occurs 2 times in 'a.py', on lines 2, 5\. Add lines around it"),
    ]:
        with pytest.raises(ToolFailure, match=message):
            call(ctx, "edit", path="a.py", old_text=old, new_text="x")
    with pytest.raises(ToolFailure, match="are the same"):
        call(ctx, "edit", path="a.py", old_text="def", new_text="def")


def test_edit_replaces_all_places_and_counts_them(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x = 1\n" * 3_000)
    result = call(ctx, "edit", path="a", old_text="x", new_text="yy", replace_all=True)
    assert result.output["replacements"] == 3_000
    assert "more characters left out" in result.output["diff"]
    assert (tmp_path / "a").read_text() == "yy = 1\n" * 3_000


def test_edit_keeps_windows_line_ends(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    call(ctx, "edit", path="a", old_text="one\ntwo", new_text="1\n2")
    assert (tmp_path / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_shell_gives_exit_code_and_output_and_a_failing_command_is_no_error(ctx: ToolContext) -> None:
    result = call(ctx, "shell", command="echo hi; echo no >&2; exit 2")
    assert result.output == {"exit_code": 2, "stdout": "hi\n", "stderr": "no\n", "timed_out": False}
    assert (result.is_error, result.display) == (False, "$ echo hi; echo no >&2; exit 2\nhi\nno\nexit code 2")


def test_shell_stops_at_the_timeout_it_was_given(ctx: ToolContext) -> None:
    result = call(ctx, "shell", command="echo hi; sleep 3600", timeout_s=5)
    assert (result.output["timed_out"], result.output["exit_code"], result.output["stdout"]) == (True, None, "hi\n")
    assert "timed out after 5" in result.display


def test_message_reaches_the_channel(ctx: ToolContext) -> None:
    result = call(ctx, "message", text="hello")
    assert ctx.channel.sent == ["hello"]  # type: ignore[union-attr]
    assert (result.output, result.display) == ({"sent": True, "characters": 5}, "hello")


def test_what_is_stored_is_found(ctx: ToolContext) -> None:
    stored = call(ctx, "memory_store", text="the sky is blue", tags=["sky"])
    assert stored.output == {"id": "m1", "kind": "fact"}
    assert [(one.path, one.kind) for one in stored.artifacts] == [("m1", "memory")]
    found = call(ctx, "memory_search", query="sky")
    assert [(one["text"], one["tags"]) for one in found.output["records"]] == [("the sky is blue", ["sky"])]
    assert (found.display, call(ctx, "memory_search", query="sea").output) == (
        "Found 1 record for 'sky'",
        {"records": []},
    )


PAGE = """<!doctype html><html><head><title>A &amp; B</title><style>p{}</style>
<script>var x = "<p>no</p>";</script></head>
<body><nav><a href=/>Home</a></nav><h1>Big</h1><p>One   two <a href="/x">three</a>.<br>four</p>
<ul><li>first<li>second</ul><pre>  a
    b</pre><table><tr><td>1</td><td>2</td></tr></table><footer>foot</footer></body></html>"""


def page(ctx: ToolContext, body: bytes, content_type: str = "text/html; charset=utf-8", status: int = 200) -> None:
    ctx.web.pages["http://a"] = FetchedPage("http://a/final", status, content_type, body)  # type: ignore[union-attr]


def test_web_search_gives_hits(ctx: ToolContext) -> None:
    page(ctx, b"")
    hits = call(ctx, "web_search", query="q").output["hits"]
    assert hits == [{"title": "http://a", "url": "http://a", "snippet": "q"}]


def test_web_fetch_gives_a_page_as_markdown(ctx: ToolContext) -> None:
    page(ctx, PAGE.encode())
    result = call(ctx, "web_fetch", url="http://a")
    assert result.output == {
        "url": "http://a/final",
        "status": 200,
        "content_type": "text/html",
        "title": "A & B",
        "text": "# Big\n\nOne two [three](http://a/x).\nfour\n\n- first\n- second\n\n```\n  a\n    b\n```\n\n1\t2",
    }
    assert result.display.startswith("Fetched A & B (200, ")


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"<nav>only this", "text/html", "only this"),
        (b"<head><title>t<body>x", "text/html", ""),
        (b"<p>a<script>never closed <p>b", "text/html", "a"),
        (b"<div>" * 50_000 + b"deep", "text/html", "deep"),
        (b"<html><body>x", "", "x"),
        ("<p>caf\xe9".encode("latin-1"), "text/html; charset=ISO-8859-1", "café"),
        ("<meta charset=latin-1><p>caf\xe9".encode("latin-1"), "text/html", "café"),
        (b"<p>a\xff", "text/html; charset=no-such", "a\ufffd"),
        (b"<p>a", "text/html; charset=base64", "a"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"<feed/>", "application/atom+xml", "<feed/>"),
        (b"", "text/html", ""),
    ],
)
def test_web_fetch_copes_with_what_the_web_is(ctx: ToolContext, body: bytes, content_type: str, text: str) -> None:
    page(ctx, body, content_type)
    assert call(ctx, "web_fetch", url="http://a").output["text"] == text


def test_web_fetch_counts_what_it_leaves_out(ctx: ToolContext) -> None:
    page(ctx, b"x" * 200_000, "text/plain")
    output = call(ctx, "web_fetch", url="http://a", max_bytes=100_000).output
    assert output["truncated_page"] == "loaded 100,000 of 200,000 bytes"
    assert output["truncated_text"] == "kept 60,000 of 100,000 characters"


def test_web_fetch_refuses_what_is_not_text(ctx: ToolContext) -> None:
    for body, content_type in [(b"\x89PNG", "image/png"), (b"a\0b", "text/plain"), (b"", "application/zip")]:
        page(ctx, body, content_type)
        with pytest.raises(ToolFailure, match="not text"):
            call(ctx, "web_fetch", url="http://a")


def test_an_error_page_is_an_answer_with_its_status(ctx: ToolContext) -> None:
    page(ctx, b"<p>gone", status=404)
    assert call(ctx, "web_fetch", url="http://a").output["status"] == 404
