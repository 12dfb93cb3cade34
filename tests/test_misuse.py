"""Checks of a program's arguments. `tests/behaviour/api/test_misuse.py` has the mistakes of programs."""

import math
from pathlib import Path
from typing import Any

import pytest

from toolcell import Capability, Profile, SessionKind
from toolcell.errors import ArgumentError
from toolcell.rules.misuse import (
    MOST_KEY_CHARS,
    capability,
    check_journal,
    check_keys,
    check_parts,
    count,
    grace,
    is_key,
    items,
    mapping,
    mechanisms,
    path,
    profiles_of,
    seconds,
    session_kind,
    settings_of,
    whole,
)

NUMBERS: list[object] = [0, 1, 2.5, -1, math.nan, True, "1", None]


def taken(check: Any, *name: str) -> list[object]:
    """Those of the numbers that pass."""
    passed: list[object] = []
    for number in NUMBERS:
        try:
            check(*name, number)
        except ArgumentError as refused:
            assert repr(number) in str(refused) and str(refused).endswith(".")
        else:
            passed.append(number)
    return passed


def test_numbers_are_numbers_and_no_truths_and_no_texts() -> None:
    assert taken(seconds, "timeout") == [1, 2.5]
    assert taken(whole, "retries") == [0, 1]
    assert taken(lambda name, value: count(name, value, "Pass a number."), "max_cells") == [1]
    assert taken(grace) == [0, 1, 2.5, None] and grace(None) == math.inf


@pytest.mark.parametrize("kind", list(SessionKind))
def test_a_kind_and_a_capability_are_known_by_their_value(kind: SessionKind) -> None:
    assert session_kind(kind.value) is kind and session_kind(kind) is kind
    assert capability("memory.read") is Capability.MEMORY_READ


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda: session_kind("brench"), r"no session kind 'brench'\. Did you mean 'branch'\?"),
        (lambda: session_kind(5), r"no session kind 5\. There are: 'main', 'branch', 'worker'\."),
        (lambda: capability("reed"), r"no capability 'reed'\. Did you mean 'read'\?"),
        (lambda: mechanisms({"landlok"}), r"names no mechanism: 'landlok'\. Did you mean 'landlock'\?"),
        (lambda: mechanisms("landlock"), r"allow_missing is not a list: 'landlock'"),
        (lambda: items("tools", b"x", "[tool]"), r"tools is not a list: b'x'\. Write tools=\[tool\]\."),
        (lambda: profiles_of([("main", 1)]), "profiles is not a mapping"),  # type: ignore[arg-type]
        (lambda: profiles_of({"main": {}}), r"profiles\['main'\] is not a Profile"),  # type: ignore[dict-item]
        (lambda: mapping("env", [1]), "env is not a mapping"),  # type: ignore[arg-type]
        (lambda: settings_of({1: 2}), "config is not a mapping of names"),  # type: ignore[dict-item]
        (lambda: path("workspace", b"/w"), "workspace is not a path"),
        (lambda: path("workspace", "a\0b"), "workspace is not a path"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_remedy(check: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        check()


def test_what_fits_is_given_back() -> None:
    assert mechanisms(["landlock"]) == {"landlock"} and items("tools", iter("ab"), "") == ("a", "b")
    assert profiles_of(None) == {} and mapping("env", None) == {} and settings_of(None) == {}
    profile = Profile.for_kind("main")
    assert profiles_of({SessionKind.MAIN: profile}) == {SessionKind.MAIN: profile}
    assert path("workspace", Path("/w")) == path("workspace", "/w") == "/w"


class Approver:
    async def approve(self, request: object) -> object: ...


def test_an_object_must_have_the_methods_of_its_protocol_and_be_no_class() -> None:
    check_parts(approver=Approver(), memory=None)
    with pytest.raises(ArgumentError, match=r"approver is the class Approver\. Pass an instance: Approver\(…\)"):
        check_parts(approver=Approver)
    with pytest.raises(ArgumentError, match=r"memory is not a MemoryStore: .*with search\(\) and store\(\)"):
        check_parts(memory=Approver())
    with pytest.raises(ArgumentError, match="approver is not an Approver: 5"):
        check_parts(approver=5)


def test_a_journal_whose_writing_would_never_run_is_refused() -> None:
    class Later:
        async def write(self, record: object) -> None: ...

    class Lazy:
        def write(self, record: object) -> Any:
            yield record

    for journal in (Later(), Lazy()):
        with pytest.raises(ArgumentError, match="is async or a generator"):
            check_journal(journal)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "is empty"),
        ("x" * (MOST_KEY_CHARS + 1), "has 1,025 characters"),
        ("half \ud800", "is not valid Unicode"),
        (5, "is not a text: 5"),
    ],
)
def test_a_key_that_cannot_be_kept_is_refused(key: Any, words: str) -> None:
    assert not is_key(key)
    with pytest.raises(ArgumentError, match=f"^task_id {words}"):
        check_keys(task_id=key)


@pytest.mark.parametrize("key", ["a", "x" * MOST_KEY_CHARS, "é\0?", "\ufffd"])
def test_any_other_text_is_a_key(key: str) -> None:
    assert is_key(key)
    check_keys(task_id=key, other=None)
