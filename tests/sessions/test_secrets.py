"""The secrets that the supervisor knows of a session, and texts without them."""

from pathlib import Path

import pytest

from toolcell import BraveSearch, BrokeredHttp, Credential, Profile, PublicWeb
from toolcell.rules.redaction import SessionSecrets

KEY = "key-of-a-client-5d21"
TOKEN = "tok-of-the-environment-90"


def test_without_secrets_there_is_nothing_to_do() -> None:
    secrets = SessionSecrets()
    places = {"PWD": "/not/a/directory/here", "OLDPWD": "/not/a/directory/there"}
    secrets.add(Profile(env={"LANG": "C", "PAGER": "less --long-options", **places}), (BrokeredHttp(), None))
    assert secrets.redaction is None


@pytest.mark.parametrize(
    "client",
    [
        BrokeredHttp(credentials={"api.example.com": Credential(value=KEY)}),
        BrokeredHttp(credentials={"api.example.com": Credential(value=f"agent:{KEY}", scheme="basic")}),
        PublicWeb(search=BraveSearch("https://search.example.com/api", Credential(value=KEY))),
    ],
)
def test_the_credentials_of_clients_are_known(client: object) -> None:
    secrets = SessionSecrets()
    secrets.add(Profile(), (client,))
    assert secrets.redaction is not None
    assert secrets.redaction.text(f"it is {KEY}.") == "it is [credential]."


def test_variables_are_known_by_name_and_passwords_by_their_place_in_a_url(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI_TOKEN", TOKEN)
    profile = Profile(
        env={"API_KEY": KEY, "DB": "postgres://a:p%40ssw0rd-1@db.example.com/x", "SECRETS_FILE": str(tmp_path)},
        pass_env=("CI_TOKEN", "NOT_SET_TOKEN"),
    )
    secrets = SessionSecrets()
    secrets.add(profile)
    assert secrets.redaction is not None
    text = f"{TOKEN} {KEY} p%40ssw0rd-1 p@ssw0rd-1 {tmp_path} db.example.com"
    assert secrets.redaction.text(text) == f"{' '.join(['[credential]'] * 4)} {tmp_path} db.example.com"
    assert KEY not in secrets.redaction.text("x" * 100_000 + KEY)


def test_a_session_knows_the_secrets_of_those_above_it_and_they_do_not_know_its_own() -> None:
    above = SessionSecrets()
    above.add(Profile(env={"API_KEY": KEY}))
    below = SessionSecrets(above)
    below.add(Profile(), (), {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"})
    assert below.redaction is not None
    assert above.redaction is not None
    assert below.redaction.text(f"{KEY} {TOKEN} application/json") == "[credential] [credential] application/json"
    assert above.redaction.text(f"{KEY} {TOKEN}") == f"[credential] {TOKEN}"
