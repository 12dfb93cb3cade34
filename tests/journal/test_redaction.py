"""Known secrets in texts and bytes: taken out in every usual spelling."""

import base64
import html
import json
import string
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell import Credential
from toolcell.backends.http.client import headers_for
from toolcell.backends.protocols import NotConfigured
from toolcell.rules.redaction import CREDENTIAL, WINDOW_BYTES, Redaction

TOKEN = "tok-3nOfThe/Service+2026=="
UNRESERVED = string.ascii_letters + string.digits + "-._~"  # of RFC 3986
MIB = 1024 * 1024
SECRETS = [
    TOKEN,
    'quo"ted<secret>&more',
    "pass word:with spaces",
    "aaaaaaaa",
    "100%41 \\u0041 &lt;x",
    "geheim-müßig🔑?>",
    "with %9\\9 inside",
]


def each(character: str, how: str) -> str:
    """The character, escaped in one way."""
    code = ord(character)
    if how == "json":
        return "".join(f"\\u{unit:04X}" for unit in memoryview(character.encode("utf-16-le")).cast("H"))
    if how == "percent":
        return "".join(f"%{byte:02x}" for byte in character.encode())
    return {"decimal": f"&#{code};", "hex": f"&#x{code:X};", "padded": f"&#x{code:06x};"}[how]


def spellings(secret: str) -> dict[str, str]:
    """The ways in which the JSON, HTML, URLs and base64 of the common libraries write a secret."""
    encoded = base64.b64encode(secret.encode()).decode()
    named = {"+": "&plus;", "/": "&sol;", "=": "&equals;", ":": "&colon;", "&": "&amp;", "<": "&lt;", '"': "&quot;"}
    special = [one for one in sorted(set(secret)) if not one.isalnum() and one != "\\"]
    ascii_only = json.dumps(secret)[1:-1]
    return {
        "plain": secret,
        "twice": secret * 2,
        "Bearer": f"Bearer {secret}",
        "JSON": json.dumps({"token": secret}),
        "JSON, UTF-8": json.dumps({"token": secret}, ensure_ascii=False),
        "JSON with slashes": json.dumps(secret).replace("/", "\\/"),
        "JSON for HTML": "".join(each(one, "json") if one in special else one for one in ascii_only),
        "JSON for HTML, lower case": "".join(
            each(one, "json").lower() if one in special else one for one in ascii_only
        ),
        "JSON in JSON": json.dumps({"content": json.dumps({"token": secret})}),
        "all in JSON": "".join(each(one, "json") for one in secret),
        "Python": repr(secret),
        "Python, ASCII": ascii(secret),
        "percent": quote(secret),
        "percent, all special": quote(secret, safe=""),
        "percent, lower case": "".join(
            one if one.isalnum() and one.isascii() else each(one, "percent") for one in secret
        ),
        "all in percent": "".join(each(one, "percent") for one in secret),
        "percent twice": quote(quote(secret, safe=""), safe=""),
        "form": quote_plus(secret),
        "query": urlencode({"k": secret}),
        "HTML": html.escape(secret),
        "HTML twice": html.escape(html.escape(secret)),
        "HTML, decimal": "".join(each(one, "decimal") if not one.isalnum() else one for one in secret),
        "HTML, hexadecimal": "".join(each(one, "hex") if not one.isalnum() else one for one in secret),
        "HTML, padded": "".join(each(one, "padded") for one in secret),
        "HTML, named": "".join(named.get(one, one) for one in secret),
        "HTML in JSON for HTML": json.dumps(html.escape(secret)).replace("&", "\\u0026"),
        "base64": encoded,
        "base64 without padding": encoded.rstrip("="),
        "base64 for URLs": base64.urlsafe_b64encode(secret.encode()).decode(),
        "base64 in a URL": quote(encoded, safe="").lower() if encoded.islower() else quote(encoded, safe=""),
        "base64 in JSON": json.dumps(encoded).replace("/", "\\/").replace("+", "\\u002b"),
    }


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("spelling", spellings(TOKEN))
def test_what_repeats_a_secret_shows_none_of_it_in_any_usual_spelling(spelling: str, secret: str) -> None:
    redaction = Redaction([secret])
    spelled = spellings(secret)[spelling]
    text = redaction.text(f"< {spelled} >")
    assert redaction.body(f"< {spelled} >".encode()).decode() == text
    left = text.replace(CREDENTIAL, "")
    assert CREDENTIAL in text
    assert len(left) <= len('< {"content": "{\\"token\\": \\"\\"}"} >'), left  # of what is around the secret
    assert redaction.value([{spelled: [spelled.encode(), 1, None]}]) == [
        {redaction.text(spelled): [redaction.text(spelled).encode(), 1, None]}
    ]


@pytest.mark.parametrize("after", ["", "z", '"'])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_answer_in_json_stays_json_where_a_secret_ends_with_a_backslash(after: str, times: int) -> None:
    text = "k3y-of-2026\\" + after
    for _ in range(times):
        text = json.dumps({"said": text})
    body: Any = Redaction(["k3y-of-2026\\"]).body(text.encode())
    for _ in range(times):
        body = json.loads(body)["said"]
    assert str(body).startswith(CREDENTIAL) and str(body).endswith(after)


PRINTABLE = st.characters(exclude_categories=["C", "Z"], exclude_characters="\\%&")


@given(st.text(PRINTABLE, min_size=8, max_size=40), st.data())
def test_a_secret_is_found_whatever_each_of_its_characters_is_escaped_as(secret: str, data: st.DataObject) -> None:
    ways = st.sampled_from(["", "json", "percent", "decimal", "hex", "padded"])
    spelled = "".join(each(one, how) if (how := data.draw(ways)) else one for one in secret)
    assert Redaction([secret]).text(f"({spelled})") == f"({CREDENTIAL})"


@given(st.text("tok-3n%&\\;ux0236amplt\n2bBF", max_size=200))
def test_a_text_without_a_secret_is_left_as_it_is(text: str) -> None:
    assert Redaction(["a-secret-that-no-such-text-has"]).text(text) == text


def test_of_basic_authentication_the_pair_the_password_and_its_base64_are_taken_out() -> None:
    _headers, redaction = headers_for([Credential(value="user:pass-word", scheme="basic")], "a")
    encoded = base64.b64encode(b"user:pass-word").decode()
    said = f"Authorization: Basic {encoded}; user:pass-word; the password is pass-word; hello user"
    assert redaction.text(said) == (
        "Authorization: Basic [credential]; [credential]; the password is [credential]; hello user"
    )


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "é"])
@pytest.mark.parametrize("after", ["", "z", "\n", ":end"])
@pytest.mark.parametrize("secret", SECRETS)
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


def test_taking_a_long_secret_out_takes_a_time_that_is_linear_in_both() -> None:
    """In quadratic time, this would not end before the test's limit."""
    assert Redaction(["a" * 2 * MIB]).text("%62" * 4 * MIB) == "%62" * 4 * MIB


@pytest.mark.parametrize("before", range(-9, 2))
def test_of_two_secrets_of_which_one_begins_with_the_other_nothing_is_left_at_the_end_of_a_window(before: int) -> None:
    short, long = "tok3n-1a", "tok3n-1a-and-more"
    body = b"x" * (WINDOW_BYTES + before) + long.encode() + b"y"
    assert Redaction([short, long]).body(body) == b"x" * (WINDOW_BYTES + before) + CREDENTIAL.encode() + b"y"


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


def test_the_headers_are_those_of_the_credentials() -> None:
    headers, _redaction = headers_for(
        [Credential(value=TOKEN, prefix="Bearer "), Credential(value="key-of-2026", header="X-Api-Key")], "a"
    )
    assert headers == {"authorization": f"Bearer {TOKEN}", "x-api-key": "key-of-2026"}


def test_a_secret_that_is_missing_is_told_by_the_header_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    with pytest.raises(NotConfigured, match=r"The credential for a cannot be read.*: X-Api-Key"):
        headers_for([Credential(value_env="ABSENT_KEY", header="X-Api-Key")], "a")
