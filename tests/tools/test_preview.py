"""Previews: what a call would do, said without doing it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell_tools import Preview, ToolContext, ToolDefinitionError, base_tools, dynamic_tool, tool
from toolcell_tools.preview import fitted, is_printable, printable, written
from toolcell_tools.workspace import DeniedWorkspace

BASE = {one.name: one for one in base_tools()}


def send(to: str, text: str, times: int = 1) -> str:
    return f"{to} {text} {times}"


def test_a_preview_takes_those_parameters_that_it_names_defaults_included() -> None:
    made = tool(send, preview=lambda text, times: f"{text} x{times}")
    assert made.preview(None, {"to": "me", "text": "hi"}) == Preview("hi x1", "hi x1")


def test_a_preview_may_take_the_context_by_a_name_of_its_own(ctx: ToolContext) -> None:
    def says(c: ToolContext, to: str) -> Preview:
        return Preview(f"{c.call_id} to {to}", "details", "diff")

    assert tool(send, preview=says).preview(ctx, {"to": "me", "text": "hi"}) == Preview("c1 to me", "details", "diff")


def test_without_a_preview_the_arguments_are_shown() -> None:
    shown = tool(send).preview(None, {"to": "me", "text": "a\nb"})
    assert shown == Preview('send(to="me", text="a\\nb")', 'to: "me"\ntext: "a\\nb"')


def test_the_summary_is_one_short_line() -> None:
    shown = tool(send, preview=lambda text: text).preview(None, {"to": "", "text": "x" * 300 + "\nsecond"})
    assert shown.summary == "x" * 134 + " [… 107 more characters …] " + "x" * 59 + "\\nsecond"
    assert shown.details.endswith("\nsecond")


def test_the_summary_and_the_details_of_long_arguments_show_both_ends_and_what_is_between() -> None:
    padded = "git status" + " " * 2500 + "; echo PWNED"
    for one in (Preview.of_call("shell", {"command": padded}), BASE["shell"].preview(None, {"command": padded})):
        assert "git status" in one.summary and "; echo PWNED" in one.summary and "2," in one.summary
    members = Preview.of_call("x", {**{f"m{number}": True for number in range(9000)}, "z": "--force"})
    assert len(members.summary) <= 200 and members.summary.endswith('z="--force")') and "…" in members.summary
    assert members.details.endswith('z: "--force"') and "more characters" in members.details


def test_fitted_keeps_both_ends_and_counts_what_is_between() -> None:
    assert fitted("x" * 30, 30) == "x" * 30
    assert fitted("a" + " " * 80 + "b" + " " * 81 + "c" + "\n" * 9, 200) == (
        "a" + " " * 80 + "b[… 81 spaces …]c[… 9 line breaks …]"
    )
    assert fitted("a" * 20 + "b" * 71 + "c" * 10, 30) == "a" * 20 + " [… 71 more characters …] " + "c" * 10


def test_written_values_are_in_one_visible_line_and_cannot_imitate_its_marks() -> None:
    assert written({"a": [1, None, "é"]}) == '{"a": [1, null, "é"]}'
    assert written("a" + " " * 40 + "b" + "\n" * 40) == '"a\\{40 spaces}b\\{40 times \\n}"'
    assert written("a" + " " * 16 + "b\\{40 spaces}") == '"a' + " " * 16 + 'b\\\\{40 spaces}"'
    assert written("\\n" * 40) == '"' + "\\\\n" * 40 + '"', "backslashes and letters, not line breaks"
    assert written("\x1b[2K\r\u202e\u200b\x7f") == '"\\u001b[2K\\r\\u202e\\u200b\\x7f"'


def test_a_dynamic_tool_previews_with_what_its_handler_gets() -> None:
    made = dynamic_tool("d", handler=lambda arguments: None, preview=lambda arguments: f"with {arguments['x']}")
    assert made.preview(None, {"x": 1}).summary == "with 1"


async def _later(to: str) -> str:
    return to


@pytest.mark.parametrize(
    ("preview", "message"),
    [
        (lambda cc: cc, "its preview takes 'cc', and the tool's parameters are: to, text, times"),
        (_later, "its preview is async or a generator. Write a plain def"),
    ],
)
def test_a_preview_that_cannot_be_is_refused(preview: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        tool(send, preview=preview)


def test_a_preview_that_gives_something_else_is_an_error() -> None:
    with pytest.raises(TypeError, match="is a int, not a Preview or a str"):
        tool(send, preview=lambda to: 3).preview(None, {"to": "", "text": ""})


def test_a_preview_crosses_as_a_dict_and_nothing_else_is_taken_for_one() -> None:
    for one in (Preview("s"), Preview("s", "d", "diff")):
        assert Preview.from_dict(one.to_dict()) == one
    lies: tuple[dict[str, Any], ...] = ({}, {"summary": "s"}, {"summary": 1, "details": "", "diff": None})
    for lie in (*lies, {**Preview("s").to_dict(), "more": ""}):
        with pytest.raises(TypeError):
            Preview.from_dict(lie)


# -- the base tools


def test_write_shows_a_diff_and_writes_nothing(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    shown = BASE["write"].preview(ctx, {"path": "a.txt", "content": "one\n2\n"})
    assert shown.summary == "Replace a.txt (2 lines)"
    assert shown.diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2"
    created = BASE["write"].preview(ctx, {"path": "deep/b.txt", "content": "x"})
    assert created.summary == "Create deep/b.txt (1 line)"
    assert created.diff is not None
    assert "+x\n\\ No newline at end of file" in created.diff
    assert [one.name for one in tmp_path.rglob("*")] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"


def test_write_says_so_where_the_file_that_is_there_cannot_be_read(
    make_context: Callable[..., ToolContext], ctx: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0")
    assert "'a.bin' is a binary file" in BASE["write"].preview(ctx, {"path": "a.bin", "content": ""}).details
    assert "outside" in BASE["write"].preview(ctx, {"path": "../x", "content": ""}).details
    blind = make_context(workspace=DeniedWorkspace(tmp_path))
    assert BASE["write"].preview(blind, {"path": "a.txt", "content": "new"}) == Preview("Write a.txt", "new")


def test_a_diff_of_very_long_files_says_how_long_they_are(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n" * 15_000)
    shown = BASE["write"].preview(ctx, {"path": "a", "content": "b\n" * 15_000})
    assert shown.diff is not None
    assert "15,000 lines become 15,000; too many to compare" in shown.diff


def test_edit_shows_the_diff_it_will_make_and_makes_none(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    arguments = {"path": "a.txt", "old_text": "two", "new_text": "2"}
    shown = BASE["edit"].preview(ctx, arguments)
    assert shown.summary == "Edit a.txt in 1 place"
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"
    done: Any = BASE["edit"].run(BASE["edit"].bind(arguments, ctx), ctx)
    assert shown.diff == done.output["diff"]


def test_edit_says_in_the_preview_that_it_would_fail(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    shown = BASE["edit"].preview(ctx, {"path": "a.txt", "old_text": "three", "new_text": "3"})
    assert shown.diff is None
    assert shown.details.startswith("This edit would fail: old_text was not found in 'a.txt'")


@pytest.mark.parametrize(
    ("name", "arguments", "summary", "details"),
    [
        ("shell", {"command": "ls -l", "cwd": "src", "timeout_s": 5}, "Run ls -l", "ls -l\n\nin src\nfor at most 5 s"),
        ("shell", {"command": "ls"}, "Run ls", "ls\n\nin the root of the workspace"),
        ("message", {"text": "hello"}, "Send the message 'hello'", "hello"),
        ("memory_store", {"text": "blue", "tags": ["a", "b"]}, "Remember a fact, tagged a, b: 'blue'", "blue"),
        ("web_fetch", {"url": "http://x.y/"}, "Fetch http://x.y/", "GET http://x.y/\nat most 1,000,000 bytes"),
    ],
)
def test_the_other_base_tools_say_what_they_would_do(
    name: str, arguments: dict[str, Any], summary: str, details: str
) -> None:
    assert BASE[name].preview(None, arguments) == Preview(summary, details)


def test_every_base_tool_that_is_not_read_only_has_a_preview() -> None:
    assert {name for name, one in BASE.items() if one.has_preview} == {
        *(name for name, one in BASE.items() if not one.declaration.annotations.read_only),
        "web_fetch",
    }


def test_printable_escapes_what_does_not_print_and_keeps_what_it_is_told_to() -> None:
    assert printable("a\x1b[2J\n\u202e\u3164\ud800é") == "a\\x1b[2J\\n\\u202e\\u3164\\ud800é"
    assert printable("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"
    assert is_printable("a\n\té", keep="\n\t") and not is_printable("\u2800") and not is_printable("a\n")
    every = "".join(map(chr, range(0x3000)))
    assert is_printable(printable(every)) and printable(printable(every)) == printable(every)


def test_no_character_that_unicode_lets_be_ignored_is_shown_as_it_is() -> None:
    """Default_Ignorable_Code_Point of Unicode: a text can be hidden in these."""
    ignorable = (
        *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
        *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
        *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
    )
    assert not [hex(code) for code in ignorable if is_printable(chr(code)) or printable(chr(code)) == chr(code)]
    assert printable("git\U000e0172\u180b") == r"git\U000e0172\u180b"


def test_a_text_is_escaped_in_pieces_without_a_change() -> None:
    text = "a\x80é\U000e0001" * 40_000
    assert printable(text) == r"a\x80é\U000e0001" * 40_000
    assert written("\\" + " " * 17 + "\\n" + "\n" * 17) == r'"\\\{17 spaces}\\n\{17 times \n}"'
