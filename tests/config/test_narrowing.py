"""A project's file is content of a repository: it may narrow its profiles, and nothing else."""

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcell import ConfigError, Limits, Profile, SessionKind, load_config
from toolcell.rules.toml.schema import ProfileTable
from toolcell_sandbox.network import NoNetwork, ProxyNetwork
from toolcell_sandbox.profile import CAPABILITIES

from .conftest import Places

MAIN, BRANCH, WORKER = SessionKind


@pytest.fixture
def data(places: Places, tmp_path: Path) -> Path:
    """A directory that the user's settings make readable, beside one that they do not."""
    for path in ("data/sub", "secret"):
        (tmp_path / path).mkdir(parents=True)
    places.user(
        f"""
        [profiles.main]
        readable = ["{tmp_path}/data"]
        writable = ["{tmp_path}/data/sub"]
        pass_env = ["LC_ALL", "TZ"]
        network = {{ kind = "proxy", allow = ["example.org", "*.example.com"], max_connections = 8 }}
        http = ["GET https://*.example.com"]
        web = ["*.example.com", "seen example.org"]
        """
    )
    return tmp_path / "data"


def test_a_project_may_narrow_each_of_these(places: Places, data: Path) -> None:
    places.project(
        f"""
        [profiles.main]
        grants = ["read", "net"]
        readable = ["{data}/sub"]
        writable = []
        system = ["/usr"]
        pass_env = ["TZ"]
        proc = false
        protected = ["...", "Makefile"]
        limits = {{ wall_s = 3, memory_bytes = 64000000 }}
        network = {{ kind = "proxy", allow = ["www.example.com:443"], max_connections = 2 }}
        http = ["GET https://www.example.com"]
        web = ["seen docs.example.com"]
        [profiles.worker]
        limits.processes = 4
        """
    )
    config = places.load()
    main = config.profiles[MAIN]
    assert main.grants == {"read", "net"}
    assert (main.readable, main.writable, main.system) == ((f"{data}/sub",), (), ("/usr",))
    assert (main.pass_env, main.proc, main.limits.wall_s) == (("TZ",), False, 3)
    assert main.protected == (*Profile().protected, "Makefile")
    assert main.network == ProxyNetwork(allow=["www.example.com:443"], max_connections=2)
    assert (main.http, main.web) == (("GET https://www.example.com",), ("seen docs.example.com",))
    assert config.profiles[WORKER].limits.processes == 4


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ("limits.wall_s = 31", "limits.wall_s", "raises the limit from 30 to 31"),
        ("limits.start_s = 21", "limits.start_s", "raises the limit from 20 to 21"),
        ("readable = ['../secret']", "readable", "makes {root}/secret readable"),
        ("readable = ['../data/../secret']", "readable", "makes {root}/secret readable"),
        ("readable = ['.']", "readable", "makes {root}/repository readable"),
        ("writable = ['../data']", "writable", "makes {root}/data writable"),
        ("system = ['../secret']", "system", "makes {root}/secret readable"),
        ("pass_env = ['TZ', 'TOKEN']", "pass_env", "passes the environment variable TOKEN"),
        ("protected = ['...', '!.envrc']", "protected", "no longer protects .envrc"),
        ("protected = []", "protected", f"no longer protects .git and {len(Profile().protected) - 1} more"),
        ("env = { PATH = '.' }", "env", "is not a limit, a grant or a path"),
        ("hostname = 'me'", "hostname", "is not a limit, a grant or a path"),
        (
            "network = { kind = 'proxy', allow = ['other.example.org'], max_connections = 1 }",
            "network",
            "reaches hosts, or moves more, than the settings below it allow",
        ),
        (
            "http = ['POST https://www.example.com']",
            "http[0]",
            "allows requests that the settings below it do not: 'POST https://www.example.com'",
        ),
        ("web = ['example.org']", "web[0]", "allows pages that the settings below it do not: 'example.org'"),
        ("network.kind = 'host'", "network", "reaches hosts, or moves more, than the settings below it allow"),
    ],
)
def test_a_project_that_widens_is_refused_and_told_where_to_say_it(
    places: Places, data: Path, text: str, key: str, what: str
) -> None:
    file = places.project(f"[profiles.main]\n{text}")
    with pytest.raises(ConfigError) as caught:
        places.load()
    assert str(caught.value) == (
        f"{file}:2: profiles.main.{key}: {what.format(root=data.parent)}, and a project's file can only narrow its "
        f"profiles. Put it in {places.user_folder}/toolcell/toolcell.toml, or trust this file: "
        f"load_config(file={str(file)!r})."
    )


def test_a_project_cannot_give_back_what_the_user_took(places: Places) -> None:
    places.user(
        "[profiles.main]\ngrants = ['read']\nproc = false\nsystem = ['/usr']\n[profiles.main.limits]\nwall_s = 2"
    )
    places.project(
        "[profiles.main]\ngrants = ['read', 'exec']\nproc = true\nsystem = ['/usr', '/lib']\nlimits.wall_s = 3"
    )
    said = [complaint.partition(", and a project's file")[0] for complaint in places.complaints()]
    assert said[:2] == [
        "profiles.main.grants: grants 'exec', which the settings below it do not",
        "profiles.main.proc: gives the cell a /proc",
    ]
    assert said[-1] == "profiles.main.limits.wall_s: raises the limit from 2 to 3"


def test_a_link_in_a_repository_does_not_lead_out_of_what_is_readable(places: Places, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (places.project_folder / "real").mkdir()
    (places.project_folder / "link").symlink_to(tmp_path / "secret")
    (places.project_folder / "inside").symlink_to("real")
    places.user(f"[profiles.main]\nreadable = ['{places.project_folder}']")
    places.project("[profiles.main]\nreadable = ['link']")
    (complaint,) = places.complaints()
    assert f"makes {tmp_path}/secret readable" in complaint
    places.project("[profiles.main]\nreadable = ['inside']")
    assert places.load().profiles[MAIN].readable == (f"{places.project_folder}/real",)


def test_a_project_has_no_say_in_what_serves_other_projects_too(places: Places) -> None:
    for setting in ("max_cells = 1", "standby = 0", "allow_missing = ['landlock']", "model_bytes = 1"):
        places.project(f"[supervisor]\n{setting}")
        (complaint,) = places.complaints()
        assert complaint.startswith("supervisor: is for every project, and a project's file can only narrow")
    for state in ("kept", ""):  # the empty path is the project's folder
        places.project(f"state = '{state}'")
        (complaint,) = places.complaints()
        assert complaint.startswith("state: is for every project, and a project's file can only narrow")


def test_a_project_does_not_choose_the_state_directory(places: Places) -> None:
    for directory in ("records", ""):
        places.project(f'state = "{directory}"')
        (complaint,) = places.complaints()
        assert complaint.startswith("state: is for every project, and a project's file can only narrow")


def test_a_project_s_file_that_is_named_is_trusted(places: Places) -> None:
    file = places.project("[supervisor]\nmax_cells = 3\n[profiles.main.limits]\nwall_s = 99")
    config = load_config(places.project_folder, file=file)
    assert (config.max_cells, config.profiles[MAIN].limits.wall_s, config.files) == (3, 99, (file,))
    through_a_link = places.explicit_file
    through_a_link.symlink_to(file)
    assert load_config(places.project_folder, file=through_a_link).files == (through_a_link,)


def test_the_user_s_own_folder_is_no_project(places: Places) -> None:
    places.user("profiles.main.limits.wall_s = 99")
    assert load_config(places.user_folder / "toolcell").profiles[MAIN].limits.wall_s == 99


def test_each_field_that_can_be_set_has_a_rule_or_is_refused(places: Places, tmp_path: Path) -> None:
    """A field that is new, and has no rule yet, must not be one that a repository can set."""
    from toolcell.rules.toml import complaints

    assert complaints._RULES.keys() <= ProfileTable.model_fields.keys()
    assert ProfileTable.model_fields.keys() - complaints._RULES.keys() == {"env", "hostname"}


def tables() -> st.SearchStrategy[dict[str, object]]:
    sizes = st.integers(1, 2**31)
    limits = st.fixed_dictionaries({}, optional={field.name: sizes for field in dataclasses.fields(Limits)})
    paths = st.lists(st.sampled_from(["/usr", "/usr/bin", "/etc", "/bin", "/", "/usr/..", "/usr/bin/../../etc"]))
    hosts = st.lists(st.sampled_from(["example.org", "*.example.org", "a.example.org:80", "b.example.com"]))
    network = st.one_of(
        st.sampled_from([{"kind": "none"}, {"kind": "host"}]),
        st.builds(lambda allow, most: {"kind": "proxy", "allow": allow, "max_connections": most}, hosts, sizes),
    )
    names = st.lists(st.sampled_from(["A", "B", "C"]))
    return st.fixed_dictionaries(
        {},
        optional={
            "grants": st.lists(st.sampled_from(sorted(CAPABILITIES))),
            "limits": limits,
            "readable": paths,
            "writable": paths,
            "system": paths,
            "pass_env": names,
            "env": st.dictionaries(st.sampled_from("AB"), st.sampled_from("xy")),
            "network": network,
            "proc": st.booleans(),
            "protected": st.lists(
                st.sampled_from(["...", "!.envrc", ".envrc", "project_code", "!project_code", "Makefile"])
            ),
        },
    )


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(below=tables(), above=tables())
def test_whatever_a_project_says_the_profile_is_narrower_or_it_is_an_error(
    places: Places, below: dict[str, object], above: dict[str, object]
) -> None:
    from toolcell.rules.toml.load import _overlaid
    from toolcell.rules.toml.source import ConfigSource

    base = load_config()
    user, wrong = _overlaid(base, ConfigSource("user", {"profiles": {"main": below}}, "/"))
    if wrong:
        return
    project, wrong = _overlaid(user, ConfigSource("project", {"profiles": {"main": above}}, "/", trusted=False))
    if not wrong:
        old, new = real(user.profiles[MAIN]), real(project.profiles[MAIN])
        assert new.is_narrower_than(old)
        assert new.env == old.env
        assert isinstance(new.network, NoNetwork) or not isinstance(old.network, NoNetwork)


def real(profile: Profile) -> Profile:
    """The same profile without symbolic links: /bin is /usr/bin nowadays."""
    fields = {name: tuple(map(os.path.realpath, getattr(profile, name))) for name in ("readable", "writable", "system")}
    return profile.replace(**fields)
