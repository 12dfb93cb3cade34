"""The text of a request for approval: complete, visible, and fitted to a bound by its middle only."""

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.backends.channels.conversation import request

from toolcell import ApprovalRequest, Preview
from toolcell.store.approvals import request as request_module
from toolcell.store.approvals.request import FORM_ROWS, rows_of

PADDED = {"command": "git status" + " " * 2500 + "; echo PWNED"}
HIDING: dict[str, dict[str, Any]] = {
    "spaces": PADDED,
    "line breaks": {"command": "git status" + "\n" * 5000 + "; echo PWNED"},
    "returns": {"command": "git status" + "\r" * 300 + "; echo PWNED"},
    "mixed blanks": {"command": "git status" + " \n\t" * 900 + "; echo PWNED"},
    "members": {**{f"m{number}": True for number in range(300)}, "z": "; echo PWNED"},
    "nested members": {"options": {**{f"m{number}": True for number in range(300)}, "z": "; echo PWNED"}},
    "erasing": {"command": "; echo PWNED\x1b[2K\r\x1b[1A\x9b2J\x08\x08git status"},
    "direction": {"command": "git status \u202e\u2066\u200b\u2800\ufe0f; echo PWNED"},
    "a long name": {"x" * 3000 + " ; echo PWNED": 1},
}
LONG: dict[str, dict[str, Any]] = {
    "a list": {"words": ["a"] * 10_000 + ["; echo PWNED"]},
    "a text": {"text": "x" * 1024 * 1024 + "; echo PWNED"},
    "lines": {"text": "first\n" * 90_000 + "; echo PWNED"},
    "arguments": {**{f"m{number}": True for number in range(1000)}, "z": "; echo PWNED"},
}


def of(arguments: dict[str, Any], **options: Any) -> ApprovalRequest:
    return replace(request(), tool="shell", arguments=arguments, preview=Preview("Run git status"), **options)


def shows_nothing_else(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("arguments", [*HIDING.values(), *LONG.values()], ids=[*HIDING, *LONG])
def test_a_request_s_text_has_the_end_of_each_argument_and_nothing_that_hides_it(arguments: dict[str, Any]) -> None:
    text = of(arguments).text
    assert "echo PWNED" in text and text.startswith("Run git status (it is elevated)\n")
    assert shows_nothing_else(text) and not re.search(" {17}", text)


@pytest.mark.parametrize("arguments", HIDING.values(), ids=HIDING)
def test_what_a_form_can_hold_is_shown_whole_in_it(arguments: dict[str, Any]) -> None:
    shown = of(arguments).for_form()
    assert shown.is_whole and shown.text == of(arguments).text


@pytest.mark.parametrize("arguments", LONG.values(), ids=LONG)
def test_a_longer_request_is_shown_with_both_ends_and_the_exact_number_of_characters_between(
    arguments: dict[str, Any],
) -> None:
    asked = of(arguments)
    shown = asked.fitted(FORM_ROWS)
    beginning, number, end = re.split(r"\n\[… ([\d,]+) characters …\]\n", shown.text)
    assert not shown.is_whole and "echo PWNED" in end and "wants to call shell" in beginning
    assert asked.text.startswith(beginning) and asked.text.endswith(end)
    assert int(number.replace(",", "")) == len(asked.text) - len(beginning) - len(end)
    assert len(rows_of(shown.text, 100)) <= FORM_ROWS + 2
    assert f"toolcell approvals show {asked.id}" in asked.for_form().text


def test_a_long_preview_gives_way_to_the_arguments_and_its_length_is_told() -> None:
    asked = of(PADDED, preview_by="tool")
    asked = replace(asked, preview=Preview("Run git status", "safe\n" * 3000, "+safe\n" * 900))
    shown = asked.fitted(40)
    assert shown.is_whole and "; echo PWNED" in shown.text and "safe" not in shown.text
    assert re.search(r"\[… [\d,]+ characters of the preview …\]", shown.text)
    assert len(asked.text.splitlines()) > 3900 and "| +safe" in asked.text


def test_no_line_of_a_preview_passes_as_the_supervisor_s() -> None:
    lie = 'agent/s1 wants to call shell with these arguments:\n    command = "ls"'
    asked = of(PADDED, preview_by="tool")
    lines = replace(asked, preview=Preview("Run ls", lie, lie)).text.splitlines()
    assert [line[:2] for line in lines] == ["Ru", "| ", "| ", "| ", "| ", "ag", "  "]


def test_the_question_of_a_confirmation_is_shown_whole() -> None:
    hint = "Remove a.txt?\n" + " " * 900 + "And all others?"
    text = of({"path": "a.txt"}, asks="confirmation", hint=hint, payload={"files": ["x"] * 9 + ["PWNED"]}).text
    assert r"Remove a.txt?\n\{900 spaces}And all others?" in text and "PWNED" in text and 'path = "a.txt"' in text


def test_the_rows_of_a_text_are_all_of_it_and_fit_the_screen() -> None:
    for text in ("", "a", "a\n\nb\n", "x" * 999, "one two " * 99, "é" * 99 + "\n" + "日本 " * 50):
        rows = rows_of(text, 40)
        assert all(end - begin <= 40 for begin, end in rows)
        covered = "".join(text[begin:end] for begin, end in rows)
        assert covered == text.replace("\n", "")


@pytest.mark.parametrize("columns", [1, 8, 40, 100])
@pytest.mark.parametrize("rows", [1, 2, 3, 9, 400])
@pytest.mark.parametrize("text", ["x" * 30_000, "x\n" * 9_000, "é b" * 9_000, "日本 " * 9_000, "a" * 900], ids=len)
def test_a_fitted_request_is_whole_or_the_two_ends_of_its_text(text: str, rows: int, columns: int) -> None:
    asked = of({"text": text})
    shown = asked.fitted(rows, columns)
    assert shown.is_whole == (len(rows_of(asked.text, columns)) <= rows)
    if not shown.is_whole:
        beginning, number, end = re.split(r"\n\[… ([\d,]+) characters …\]\n", shown.text)
        assert asked.text.startswith(beginning) and asked.text.endswith(end)
        assert int(number.replace(",", "")) == len(asked.text) - len(beginning) - len(end) > 0


def test_a_long_request_is_cut_before_its_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    rows = request_module.rows_of

    def counting(text: str, columns: int) -> list[tuple[int, int]]:
        counted.append(len(text))
        return rows(text, columns)

    monkeypatch.setattr(request_module, "rows_of", counting)
    assert not of({"text": "\\" * 2_000_000}).fitted(21, 76).is_whole
    assert max(counted) < 5_000
