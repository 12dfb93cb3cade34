"""Rules for requests and credentials in a toolcell.toml: it has the source of a secret, never the secret; a project
only narrows.
"""

import pickle
from pathlib import Path

import pytest
from tests.config.conftest import Places

from toolcell import ConfigError, Credential, SessionKind, Supervisor, UsageError, load_config

MAIN, BRANCH, WORKER = SessionKind
SECRET = "a-secret-that-nobody-sees"


def test_rules_and_credentials_are_settings(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    token = places.user_folder / "toolcell" / "token"
    places.user(
        """
        [profiles.main]
        http = ["GET,POST api.example.com/v1", "* http://127.0.0.1:8080"]

        [supervisor.credentials]
        "api.example.com" = { value_env = "API_TOKEN", prefix = "Bearer " }
        "http://127.0.0.1:8080" = [
            { header = "X-Key", value_file = "token" },
            { value_env = "API_TOKEN", scheme = "basic" },
        ]
        """
    )
    token.write_text(SECRET)
    config = places.load()
    assert config.profiles[MAIN].http == ("GET,POST https://api.example.com/v1", "* http://127.0.0.1:8080")
    assert config.profiles[BRANCH].http == config.profiles[WORKER].http == ()
    assert config.credentials["api.example.com"] == (Credential(value_env="API_TOKEN", prefix="Bearer "),)
    key, basic = config.credentials["http://127.0.0.1:8080"]
    assert (key.header, key.value_file, key.read()) == ("X-Key", str(token), SECRET), "relative to the file"
    assert (basic.scheme, basic.read()) == ("basic", SECRET)
    assert SECRET not in repr(config) and SECRET not in repr(Supervisor(config=config))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(dict(config.credentials))


def test_layers_add_hosts_and_replace_those_of_the_same_name(places: Places) -> None:
    places.user(
        """
        [supervisor.credentials]
        "a.example.com" = { value_env = "A" }
        "b.example.com" = { value_env = "B" }
        """
    )
    places.explicit('[supervisor.credentials."b.example.com"]\nvalue_env = "C"')
    found = places.load().credentials
    assert {place: [one.value_env for one in all] for place, all in found.items()} == {
        "a.example.com": ["A"],
        "b.example.com": ["C"],
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[profiles.main]\nhttp = ['GET a.example.com', 'get a.example.com']",
            "profiles.main.http[1]: has a rule that names a method other than GET, HEAD, POST",
        ),
        ("[profiles.main]\nhttp = 'GET a.example.com'", "profiles.main.http: should be a list of text, is text."),
        ("[profiles.main]\nhttp = [7]", "profiles.main.http[0]: should be text, is a whole number."),
        (
            "[profiles.worker]\nhttp = ['GET a.example.com']",
            "profiles.worker.http: no requests are made for a Worker. Nothing can widen a Worker",
        ),
        (
            f"[supervisor.credentials]\n'a.example.com' = {{ value = '{SECRET}' }}",
            "supervisor.credentials.a.example.com.value: is a secret in a file of settings. Name where it is, with",
        ),
        (
            f"[supervisor.credentials]\n'a.example.com' = '{SECRET}'",
            "supervisor.credentials.a.example.com: should be a table such as { value_env",
        ),
        (
            "[supervisor.credentials]\n'*.a.example.com' = { value_env = 'A' }",
            "supervisor.credentials.*.a.example.com: '*.a.example.com' is not one host for a credential.",
        ),
        (
            "[supervisor.credentials]\n'a.example.com' = { value_enw = 'A' }",
            "supervisor.credentials.a.example.com.value_enw: unknown. Did you mean value_env?",
        ),
        (
            "[supervisor.credentials]\n'a.example.com' = { header = 'X-Key' }",
            "supervisor.credentials.a.example.com: A Credential has exactly one of value, value_env and value_file.",
        ),
        (
            "[supervisor.credentials]\n'a.example.com' = { header = 'Host', value_env = 'A' }",
            "supervisor.credentials.a.example.com: Credential.header is not a header for a secret: 'Host'.",
        ),
        ("[supervisor]\ncredentials = []", "supervisor.credentials: should be a table such as"),
    ],
)
def test_what_is_wrong_is_told_at_its_key_and_no_secret_with_it(places: Places, text: str, complaint: str) -> None:
    places.user(text)
    [said] = places.complaints()
    assert said.startswith(complaint) and SECRET not in said


def test_a_secret_that_is_missing_here_is_told_by_the_supervisor_and_not_by_the_file(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("API_TOKEN", raising=False)
    places.user('[supervisor.credentials."a.example.com"]\nvalue_env = "API_TOKEN"')
    config = places.load()
    with pytest.raises(UsageError, match=r"'a\.example\.com' is not there: .* API_TOKEN is not set"):
        Supervisor(config=config)


USER = """
[profiles.main]
http = ["GET,POST https://api.example.com/v1", "GET *.example.org"]
"""


def test_a_project_may_narrow_its_rules(places: Places) -> None:
    places.user(USER)
    places.project("[profiles.main]\nhttp = ['GET api.example.com/v1/users', 'GET a.example.org']")
    assert places.load().profiles[MAIN].http == (
        "GET https://api.example.com/v1/users",
        "GET https://a.example.org",
    )


@pytest.mark.parametrize(
    "rule",
    [
        "GET api.example.com", "DELETE api.example.com/v1", "GET http://api.example.com/v1", "GET example.org",
        "GET api.example.com/v1 private", "GET 127.0.0.1", "* *.example.org", "GET api.example.com:8443/v1",
    ],
)  # fmt: skip
def test_a_project_may_not_widen_them(places: Places, rule: str) -> None:
    places.user(USER)
    places.project(f"[profiles.main]\nhttp = ['GET api.example.com/v1', '{rule}']")
    [said] = places.complaints()
    assert said.startswith("profiles.main.http[1]: allows requests that the settings below it do not: ")
    assert "a project's file can only narrow its profiles." in said


def test_a_project_has_no_say_in_credentials(places: Places, tmp_path: Path) -> None:
    """Otherwise a repository could send the content of any of the user's files to the host that its rules allow."""
    places.user(USER)
    secret = tmp_path / "id_ed25519"
    secret.write_text(SECRET)
    places.project(f'[supervisor.credentials."a.example.org"]\nvalue_file = "{secret}"')
    [said] = places.complaints()
    assert said.startswith("supervisor: is for every project, and a project's file can only narrow")


def test_arguments_are_a_layer_too(places: Places) -> None:
    config = load_config(
        profiles={"main": {"http": ["GET a.example.com"]}},
        supervisor={"credentials": {"a.example.com": {"value_env": "A"}}},
    )
    assert config.profiles[MAIN].http == ("GET https://a.example.com",) and "a.example.com" in config.credentials
    with pytest.raises(ConfigError):
        load_config(supervisor={"credentials": {"a.example.com": {"value": SECRET}}})
