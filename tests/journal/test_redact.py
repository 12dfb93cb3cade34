"""Arguments in the journal: no secrets, bounded, and with a digest where they are not complete."""

import pytest

from toolcell.journal.redact import MOST_CHARS, arguments_for_journal, digest_of


def test_small_arguments_are_kept_whole_and_need_no_digest() -> None:
    arguments = {"x": 1, "name": "text", "list": [1, {"a": None}], "flag": True, "part": 1.5}
    assert arguments_for_journal(arguments) == {"arguments": arguments}


@pytest.mark.parametrize("name", ["password", "API_KEY", "api-key", "accessToken", "client_secret", "Authorization"])
def test_values_of_secret_names_are_not_kept_at_any_depth(name: str) -> None:
    arguments = {"headers": [{name: "hunter2"}]}
    kept = arguments_for_journal(arguments)
    assert "hunter2" not in repr(kept)
    assert kept["digest"] == digest_of(arguments)


def test_long_texts_are_cut_and_all_together_are_bounded() -> None:
    arguments = {f"text{number}": "x" * 1_000 for number in range(100)}
    kept = arguments_for_journal(arguments)
    assert len(repr(kept)) < 2 * MOST_CHARS + 100 * 40
    assert kept["arguments"]["text0"] == "x" * 1_000
    assert kept["arguments"]["text99"] == "… (1,000 characters)"
    assert kept["digest"] == digest_of(arguments)


def test_many_small_values_are_bounded() -> None:
    kept = arguments_for_journal({"list": [[number] for number in range(100_000)]})
    assert len(repr(kept)) < 1_000_000 and "digest" in kept


def test_the_digest_does_not_depend_on_the_order_of_names() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1}) != digest_of({"a": 1, "b": 3})


def test_an_integer_that_is_too_large_is_kept_as_text() -> None:
    assert arguments_for_journal({"x": 2**80})["arguments"] == {"x": str(2**80)}
