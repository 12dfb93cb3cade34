"""Secrets: where they come from, for which host, and everywhere that they must not be seen."""

import base64
import copy
import json
import logging
import pickle
import time
import traceback
from pathlib import Path

import cloudpickle
import pytest

from toolcell import BrokeredHttp, Credential, Supervisor, UsageError, tool
from toolcell.backends.errors import NotConfigured
from toolcell.backends.http.redaction import REDACTED, WINDOW_BYTES, Redaction, headers_for
from toolcell.credentials import parse_origin

from .backends.http.conftest import TOKEN

MIB = 1024 * 1024


def test_a_secret_comes_from_the_program_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    monkeypatch.setenv("API_TOKEN", TOKEN)
    for one in (Credential(value=TOKEN), Credential(value_env="API_TOKEN"), Credential(value_file=file)):
        assert one.read() == TOKEN
        assert headers_for([one], "a")[0] == {"authorization": TOKEN}
    file.write_text("another-secret")
    assert Credential(value_file=file).read() == "another-secret", "it is read anew, for such files are rotated"


def test_a_header_has_a_prefix_or_basic_authentication() -> None:
    bearer = Credential(value=TOKEN, prefix="Bearer ")
    basic = Credential(value="user:pass word", scheme="basic")
    key = Credential(header="X-Api-Key", value=TOKEN)
    assert headers_for([bearer, key], "a")[0] == {"authorization": f"Bearer {TOKEN}", "x-api-key": TOKEN}
    encoded = base64.b64encode(b"user:pass word").decode()
    assert headers_for([basic], "a")[0] == {"authorization": f"Basic {encoded}"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "one of value, value_env and value_file"),
        ({"value": TOKEN, "value_env": "X"}, "one of value, value_env and value_file"),
        ({"value": "short"}, "8 to 8,192 characters"),
        ({"value": f"{TOKEN}\r\nX: y"}, "printable ASCII"),
        ({"value": TOKEN, "header": "Host"}, "not a header for a secret"),
        ({"value": TOKEN, "header": "Content-Length"}, "not a header for a secret"),
        ({"value": TOKEN, "header": "X Y"}, "not a header for a secret"),
        ({"value": TOKEN, "prefix": "Bearer\n"}, "short printable ASCII"),
        ({"value": TOKEN, "scheme": "digest"}, "Use 'plain' or 'basic'"),
    ],
)
def test_what_cannot_be_a_credential_is_refused_without_showing_it(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        Credential(**options)  # type: ignore[arg-type]
    assert TOKEN not in str(caught.value) and "short'" not in str(caught.value)


def test_a_secret_that_is_not_there_is_told_when_the_client_is_made_and_when_it_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("API_TOKEN", raising=False)
    with pytest.raises(ValueError, match=r"'a\.example\.com' is not there: .* API_TOKEN is not set"):
        BrokeredHttp(credentials={"a.example.com": Credential(value_env="API_TOKEN")})
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        BrokeredHttp(credentials={"a.example.com": Credential(value_file=tmp_path / "none")})
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not text"):
        BrokeredHttp(credentials={"a.example.com": Credential(value_file=binary)})
    with pytest.raises(NotConfigured, match=r"for a\.example\.com cannot be read") as caught:
        headers_for([Credential(value_file=tmp_path / "none")], "a.example.com")
    assert str(tmp_path) not in str(caught.value), "a model reads this"


def test_a_credential_is_for_one_host() -> None:
    assert parse_origin("api.example.com") == ("https", "api.example.com", 443)
    assert parse_origin("API.example.com:8443") == ("https", "api.example.com", 8443)
    assert parse_origin("http://[::1]:8080") == ("http", "::1", 8080)
    for place in (
        "*.example.com",
        "https://api.example.com/v1",
        "",
        "a b",
        "user@a.example.com",
        "a.example.com private",
    ):
        with pytest.raises(ValueError, match="is not one host for a credential"):
            BrokeredHttp(credentials={place: Credential(value=TOKEN)})
    with pytest.raises(ValueError, match="in one header"):
        BrokeredHttp(credentials={"a.example.com": [Credential(value=TOKEN), Credential(value=TOKEN * 2)]})


def test_a_credential_shows_its_value_to_nobody() -> None:
    credential = Credential(value=TOKEN, prefix="Bearer ")
    client = BrokeredHttp(credentials={"api.example.com": credential})
    supervisor = Supervisor(http=client)
    for shown in (credential, client, supervisor, [credential], {"a": credential}):
        assert TOKEN not in repr(shown) and TOKEN not in str(shown)
    assert repr(client) == "<BrokeredHttp credentials for: https://api.example.com:443>"
    assert credential.source == "the program"


def test_a_credential_travels_nowhere() -> None:
    credential = Credential(value=TOKEN)
    for carrier in (credential, BrokeredHttp(credentials={"a.example.com": credential}), {"kept": [credential]}):
        for dump in (pickle.dumps, cloudpickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                dump(carrier)


@pytest.mark.anyio
async def test_a_tool_that_holds_a_credential_is_refused_before_anything_runs() -> None:
    credential = Credential(value=TOKEN)

    @tool
    def leak() -> str:
        """Give the secret away."""
        return credential.read()

    with pytest.raises(UsageError, match="A Credential cannot be pickled") as caught:
        async with Supervisor([leak]):
            pass
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


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
    body = (unit * (4 * MIB // len(unit))).encode()
    began = time.process_time()
    redacted = Redaction([secret]).body(body)
    assert time.process_time() - began < 3.0
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


def test_no_secret_is_logged_while_a_client_is_made(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    BrokeredHttp(credentials={"a.example.com": Credential(value=TOKEN)})
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("secret", SECRETS)
def test_no_character_of_a_repeated_secret_is_left(secret: str) -> None:
    _headers, redaction = headers_for([Credential(value=secret, prefix="Bearer ")], "a")
    assert redaction.text(json.dumps({"token": secret})) == '{"token": "[credential]"}'
    assert redaction.body(json.dumps(secret).encode()) == b'"[credential]"'
