"""Secrets: where they come from, for which host, and everywhere that they must not be seen."""

import base64
import copy
import logging
import pickle
import traceback
from pathlib import Path

import cloudpickle
import pytest

from toolcell import BrokeredHttp, Credential, Supervisor, UsageError, tool
from toolcell.backends.http.client import headers_for
from toolcell.backends.protocols import NotConfigured
from toolcell.rules.credentials import parse_origin

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


def test_no_secret_is_logged_while_a_client_is_made(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    BrokeredHttp(credentials={"a.example.com": Credential(value=TOKEN)})
    assert TOKEN not in caplog.text
