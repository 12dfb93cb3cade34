"""Arguments in the journal: no secrets, bounded, and with a digest where they are not complete."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.rules.redaction import LEAST_CHARS, MOST_CHARS, REDACTED, Redaction, secrets_in, without_secrets
from toolcell.store.journal import Record
from toolcell.store.journal.arguments import arguments_for_journal, bounded_log, digest_of


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


@pytest.mark.parametrize(
    "arguments",
    [
        {"list": [[number] for number in range(100_000)]},
        {"numbers": list(range(100_000))},
        {f"name{number}": number for number in range(100_000)},
        {"n" * 100_000: 1, "m" * 100_000: True},
        {"deep": [{"a": [{"b": ["x" * 50] * 50}] * 50}] * 50},
        {"number": 10**4_000},
    ],
    ids=["lists", "numbers", "names", "long names", "depth", "a long number"],
)
def test_whatever_the_arguments_are_a_record_is_small_and_has_the_digest_of_all(arguments: dict[str, Any]) -> None:
    kept = arguments_for_journal(arguments)
    assert len(repr(kept["arguments"])) < 20_000 and kept["digest"] == digest_of(arguments)


SECRETS = {
    "curl -H 'Authorization: Bearer abcdefgh12345' https://api.example.com": "abcdefgh12345",
    "export API_KEY=0123456789abcdef": "0123456789abcdef",
    "psql postgres://bob:hunter2@db.example.com/x": "hunter2",
    "mysql --password hunter2 -u root": "hunter2",
    "mysql --password=hunter2": "hunter2",
    '{"token": "abcdefg"}': "abcdefg",
    "git clone https://ghp_abcdefghijklmnopqrstuvwxyz0123@example.com/a": "ghp_abcdefghijklmnopqrstuvwxyz0123",
    "key is sk-abcdefghijklmnopqrstuvwx": "sk-abcdefghijklmnopqrstuvwx",
    "-----BEGIN RSA PRIVATE KEY-----\nabcd\n-----END RSA PRIVATE KEY-----": "abcd",
    "AKIAABCDEFGHIJKLMNOP": "AKIAABCDEFGHIJKLMNOP",
    "ASIAABCDEFGHIJKLMNOP": "ASIAABCDEFGHIJKLMNOP",
    "AIza0123456789abcdefghijklmnopqrstu": "AIza0123456789abcdefghijklmnopqrstu",
    "glpat-abcdefghijklmnop": "abcdefghijklmnop",
    "xoxb-0123456789": "xoxb-0123456789",
    "client_secret=hunter2": "hunter2",
    "pwd=hunter2": "hunter2",
    "token=hunter2": "hunter2",
    "credential: hunter2": "hunter2",
    "Basic aHVudGVyMjo=": "aHVudGVyMjo",
    "Bearer abcdefgh": "abcdefgh",
    "curl -H 'Authorization: Token abcdefgh' https://api.example.com": "abcdefgh",
    'curl -H "Authorization: Digest a=b, c=efgh" https://api.example.com': "efgh",
    'echo {\\"Authorization\\": \\"Token abcdefgh\\"}': "abcdefgh",
    "Set-Cookie: session=abcdefgh; Secure": "abcdefgh",
    'curl -d "{\\"password\\": \\"hunter2\\"}"': "hunter2",
    'curl -d "{\\\\\\"password\\\\\\": \\\\\\"correct horse\\\\\\"}"': "horse",
    '{"password": "correct horse \\"battery\\" staple"}': "staple",
    "password='correct horse battery'": "battery",
    "signing_key: abcdefgh": "abcdefgh",
    "password=DOMAIN\\hunter2": "hunter2",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.abcdefg": "eyJzdWIiOiIxMjM0NTYifQ",
}


@pytest.mark.parametrize("text", SECRETS)
def test_what_has_the_form_of_a_secret_is_not_kept_in_a_text(text: str) -> None:
    kept = arguments_for_journal({"command": text})
    assert SECRETS[text] not in repr(kept) and REDACTED in repr(kept)
    assert kept["digest"] == digest_of({"command": text})
    assert SECRETS[text] not in repr(arguments_for_journal({"list": [{"a": text}]}))


@pytest.mark.parametrize(
    "text", ["the token is in the list", "count tokens", "mail a@example.com", "read secrets.txt please", "git status"]
)
def test_usual_words_are_kept(text: str) -> None:
    assert arguments_for_journal({"command": text}) == {"arguments": {"command": text}}


@given(st.text("://@=-_ \"'passwordtkenib", max_size=LEAST_CHARS - 1))
def test_a_text_that_is_too_short_to_be_searched_has_no_secret(text: str) -> None:
    assert without_secrets(text) == text
    assert without_secrets(text + " " * LEAST_CHARS) == text + " " * LEAST_CHARS


def test_the_shortest_secret_is_found() -> None:
    assert without_secrets("://:p@") == f"://{REDACTED}@" and len("://:p@") == LEAST_CHARS


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"token": "abcd", "name": "efgh"}, ["abcd"]),
        ({"token": "abc"}, []),  # a tool prints so short a text for other reasons
        ({"headers": [{"Authorization": "abcd"}, 5]}, ["abcd"]),
        ({"tokens": ["abcd", ["efgh"], 5, None]}, ["abcd", "efgh"]),
    ],
)
def test_the_secrets_that_a_tool_may_print_are_those_of_secret_names(
    arguments: dict[str, Any], found: list[str]
) -> None:
    assert list(secrets_in(arguments)) == found


def test_secrets_are_looked_for_as_deep_as_arguments_may_be_and_no_deeper() -> None:
    def nested(levels: int) -> dict[str, Any]:
        arguments: dict[str, Any] = {"token": "abcd"}
        for _ in range(levels):
            arguments = {"a": arguments}
        return arguments

    assert list(secrets_in(nested(64))) == ["abcd"]
    assert list(secrets_in(nested(65))) == list(secrets_in(nested(10_000))) == []


def test_a_log_entry_is_bounded_and_has_no_secret() -> None:
    fields = {"password": "hunter2", "text": "x" * 100_000}
    record = bounded_log(Record("log", "s", "c", {"level": "info", "message": "y" * 100_000, "fields": fields}))
    assert len(repr(record)) < 10_000 and "hunter2" not in repr(record) and record.data["level"] == "info"


def test_no_part_of_a_known_secret_is_left_where_a_text_is_cut() -> None:
    known = Redaction(["a-known-secret"], REDACTED)
    for before in range(MOST_CHARS - 20, MOST_CHARS + 2):
        kept = arguments_for_journal({"text": "." * before + "a%2dknown-secret" + "x" * MOST_CHARS}, known)
        assert "a%2d" not in repr(kept) and "(" in kept["arguments"]["text"]


def test_the_digest_does_not_depend_on_the_order_of_names() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1}) != digest_of({"a": 1, "b": 3})


def test_an_integer_that_is_too_large_is_kept_as_text() -> None:
    kept = arguments_for_journal({"x": 2**80})
    assert kept == {"arguments": {"x": str(2**80)}, "digest": digest_of({"x": 2**80})}
