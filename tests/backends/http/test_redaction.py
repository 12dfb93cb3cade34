"""Secrets that a server repeats: taken out of its answer in every usual spelling."""

import base64
import json

import pytest

from toolcell import Credential
from toolcell.backends.errors import NotConfigured
from toolcell.backends.http.redaction import REDACTED, WINDOW_BYTES, Redaction, headers_for

from .conftest import TOKEN

MIB = 1024 * 1024
SECRETS = [TOKEN, 'quo"ted<secret>&more', "pass word:with spaces", "aaaaaaaa"]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_a_server_repeats_is_taken_out_in_every_usual_spelling(secret: str) -> None:
    from html import escape
    from urllib.parse import quote, quote_plus, urlencode

    _headers, redaction = headers_for([Credential(value=secret, prefix="Bearer ")], "a")
    encoded = base64.b64encode(secret.encode()).decode()
    for spelled in (
        f"Bearer {secret}", json.dumps({"token": secret}), json.dumps(secret).replace("/", "\\/"), quote(secret),
        quote(secret, safe=""), quote_plus(secret), urlencode({"k": secret}), escape(secret), encoded,
        base64.urlsafe_b64encode(secret.encode()).decode(), encoded.rstrip("="), secret * 2,
    ):  # fmt: skip
        text, body = redaction.text(f"<{spelled}>"), redaction.body(f"<{spelled}>".encode())
        assert "[credential]" in text and body.decode() == text
        for leftover in (secret, encoded.rstrip("="), quote(secret, safe="")):
            assert leftover not in text


def test_of_basic_authentication_the_pair_the_password_and_its_base64_are_taken_out() -> None:
    _headers, redaction = headers_for([Credential(value="user:pass-word", scheme="basic")], "a")
    encoded = base64.b64encode(b"user:pass-word").decode()
    said = f"Authorization: Basic {encoded}; user:pass-word; the password is pass-word; hello user"
    assert redaction.text(said) == (
        "Authorization: Basic [credential]; [credential]; the password is [credential]; hello user"
    )


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "é"])
@pytest.mark.parametrize("after", ["", "z", "\n", ":end"])
@pytest.mark.parametrize("secret", [*SECRETS, "geheim-müßig?>"])
def test_a_secret_inside_of_a_longer_text_in_base64_is_taken_out(before: str, after: str, secret: str) -> None:
    redaction = Redaction([secret])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = redaction.text(f"Basic {encode((before + secret + after).encode()).decode()}")
        assert "[credential]" in text
        kept = text.removeprefix("Basic ").split("[credential]")
        assert max(map(len, kept)) <= 4 * (len((before + after).encode()) // 3 + 2)  # what stands around, no more


KEY_LINES = ["-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG9w0B/+xyz", "AQEFAASCBKcwggSjAgEAAoIBAQ==", "short"]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\\n"])
def test_of_a_secret_with_several_lines_each_long_line_is_taken_out(line_break: str) -> None:
    redaction = Redaction([line_break.join([*KEY_LINES, "-----END PRIVATE KEY-----"])])
    numbered = "\n".join(f"{number}\t{line}" for number, line in enumerate(KEY_LINES, 1))
    shown = "1\t-----BEGIN PRIVATE KEY-----\n2\t[credential]\n3\t[credential]\n4\tshort"
    assert redaction.text(numbered) == shown
    assert redaction.text(json.dumps({"content": json.dumps(numbered)})).count("[credential]") == 2
    assert Redaction(["a secret of 1 line"]).text("a secret of") == "a secret of"


@pytest.mark.parametrize("secret", ["aaaaaaaab", "a" * 4000 + "b", "ab" * 2000, "0123456789"])
@pytest.mark.parametrize("unit", ["a", "ab", "aaaaaaaa", "0123456789", "012345678"])
def test_taking_secrets_out_takes_a_time_that_is_linear_in_the_body_whatever_it_is(secret: str, unit: str) -> None:
    """In quadratic time, this would not end before the test's limit."""
    body = (unit * (32 * MIB // len(unit))).encode()
    redacted = Redaction([secret]).body(body)
    assert secret.encode() not in redacted and len(redacted) < 2 * len(body)


@pytest.mark.parametrize("before", range(-9, 2))
def test_of_two_secrets_of_which_one_begins_with_the_other_nothing_is_left_at_the_end_of_a_window(before: int) -> None:
    short, long = "tok3n-1a", "tok3n-1a-and-more"
    body = b"x" * (WINDOW_BYTES + before) + long.encode() + b"y"
    assert Redaction([short, long]).body(body) == b"x" * (WINDOW_BYTES + before) + REDACTED.encode() + b"y"


@pytest.mark.parametrize("shift", range(-24, 25, 3))
def test_a_secret_is_taken_out_where_it_lies_across_two_windows(shift: int) -> None:
    before = b"." * (WINDOW_BYTES + shift)
    body = Redaction([TOKEN]).body(before + TOKEN.encode() + b"..." + TOKEN.encode() * 2)
    assert body == before + b"[credential]...[credential][credential]"


def test_without_secrets_nothing_is_taken_out() -> None:
    nothing = Redaction([])
    assert (nothing.text("x" * 100), nothing.body(b"\xff\0")) == ("x" * 100, b"\xff\0")
    some = Redaction([TOKEN])
    assert some.body(bytes(range(256))) == bytes(range(256))


@pytest.mark.parametrize("secret", SECRETS)
def test_no_character_of_a_repeated_secret_is_left(secret: str) -> None:
    _headers, redaction = headers_for([Credential(value=secret, prefix="Bearer ")], "a")
    assert redaction.text(json.dumps({"token": secret})) == '{"token": "[credential]"}'
    assert redaction.body(json.dumps(secret).encode()) == b'"[credential]"'


def test_the_headers_are_those_of_the_credentials() -> None:
    headers, _redaction = headers_for(
        [Credential(value=TOKEN, prefix="Bearer "), Credential(value="key-of-2026", header="X-Api-Key")], "a"
    )
    assert headers == {"authorization": f"Bearer {TOKEN}", "x-api-key": "key-of-2026"}


def test_a_secret_that_is_missing_is_told_by_the_header_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    with pytest.raises(NotConfigured, match=r"The credential for a cannot be read.*: X-Api-Key"):
        headers_for([Credential(value_env="ABSENT_KEY", header="X-Api-Key")], "a")
