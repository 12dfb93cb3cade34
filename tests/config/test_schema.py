"""What a wrong setting gets: its file, its line, its key, what is wrong and what to do."""

from dataclasses import fields
from typing import Any

import pytest

from toolcell import ConfigError, ProxyNetwork, load_config
from toolcell.rules.toml.schema import NetworkTable

from .conftest import Places


def test_a_mistake_is_told_with_file_line_key_and_the_near_name(places: Places) -> None:
    file = places.user("# mine\n\n[profiles.worker.limits]\nwal_s = 5\n")
    with pytest.raises(ConfigError) as caught:
        places.load()
    assert str(caught.value) == f"{file}:4: profiles.worker.limits.wal_s: unknown. Did you mean wall_s?"


def test_every_mistake_of_every_file_is_told_at_once(places: Places) -> None:
    places.user("supervisr.standby = 1\nprofiles.main.limits.wall_s = 'long'")
    places.explicit("supervisor.standby = 2")
    assert places.complaints() == [
        "supervisr: unknown. Did you mean supervisor?",
        "profiles.main.limits.wall_s: should be a number of seconds above zero, is text.",
        "supervisor.standby: should be a whole number from 0 to 1, is 2.",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("profile = {}", "profile: unknown. Did you mean profiles?"),
        ("qwerty = 1", "qwerty: unknown. Known: state, profiles, supervisor, policy, mcpServers."),
        ("[profiles.wroker]", "profiles.wroker: unknown. Did you mean worker?"),
        ("profiles.main.wall_s = 1", "profiles.main.wall_s: unknown. Did you mean limits.wall_s?"),
        ("profiles.main.memory = 1", "profiles.main.memory: unknown. Did you mean limits.memory_bytes?"),
        ("max_cells = 1", "max_cells: unknown. Did you mean supervisor.max_cells?"),
        ("profiles.main.readble = []", "profiles.main.readble: unknown. Did you mean readable?"),
        ("profiles = 1", "profiles: should be a table, is a whole number."),
        ("profiles.main = 'x'", "profiles.main: should be a table, is text."),
        ("profiles.main.limits = [1]", "profiles.main.limits: should be a table, is a list."),
        (
            "profiles.main.limits.processes = 1.5",
            "profiles.main.limits.processes: should be a whole number above zero, is a fraction.",
        ),
        (
            "profiles.main.limits.processes = true",
            "profiles.main.limits.processes: should be a whole number above zero, is true or false.",
        ),
        (
            "profiles.main.limits.wall_s = 0",
            "profiles.main.limits.wall_s: is not positive and finite: 0. Pass a value above zero.",
        ),
        (
            "profiles.main.limits.wall_s = inf",
            "profiles.main.limits.wall_s: is not positive and finite: inf. Pass a value above zero.",
        ),
        ("profiles.main.readable = '/srv'", "profiles.main.readable: should be a list of text, is text."),
        ("profiles.main.readable = [2020-01-01]", "profiles.main.readable[0]: should be text, is a date."),
        (
            "profiles.main.readable = ['/']",
            "profiles.main.readable: cannot be '/': the cell has its own. Name what is below it.",
        ),
        ('profiles.main.pass_env = ["A\\u0000"]', "profiles.main.pass_env[0]: has a null character. Leave it out."),
        (
            "profiles.main.pass_env = ['A=1']",
            "profiles.main.pass_env[0]: is not a name of an environment variable. Leave out '=' and what follows.",
        ),
        ("profiles.main.env = ['A']", "profiles.main.env: should be a table of text, is a list."),
        ("profiles.main.proc = 'no'", "profiles.main.proc: should be true or false, is text."),
        ("profiles.main.hostname = ''", "profiles.main.hostname: is not of 1 to 64 bytes: ''. Shorten it."),
        (
            "profiles.main.grants = ['exce']",
            "profiles.main.grants[0]: there is no capability 'exce'. Did you mean exec?",
        ),
        (
            "supervisor.allow_missing = ['landlok']",
            "supervisor.allow_missing[0]: there is no mechanism 'landlok'. Did you mean landlock?",
        ),
        ("supervisor.max_cells = 0", "supervisor.max_cells: should be a whole number from 1, is 0."),
        (
            "supervisor.approval_timeout_s = -inf",
            "supervisor.approval_timeout_s: should be a number of seconds above zero, is -inf.",
        ),
        (
            "supervisor.approval_timeout_s = true",
            "supervisor.approval_timeout_s: should be a number of seconds above zero, is true or false.",
        ),
        ("supervisor.model_bytes = 1.5", "supervisor.model_bytes: should be a whole number from 1, is a fraction."),
        ("supervisor.quarantine = 3", "supervisor.quarantine: should be text, is a whole number."),
        ("supervisor.standby = false", "supervisor.standby: should be a whole number from 0 to 1, is true or false."),
        (
            "profiles.main.network = 'proxy'",
            'profiles.main.network: should be a table such as { kind = "proxy", allow = ["example.org"] }, is text.',
        ),
        (
            "profiles.main.network.allow = []",
            'profiles.main.network: does not say its kind. Set kind to "none", "proxy" or "host".',
        ),
        (
            "profiles.main.network = { kind = 'proxy', alow = [] }",
            "profiles.main.network.alow: unknown. Did you mean allow?",
        ),
        (
            "profiles.main.network = { kind = 'tor' }",
            "profiles.main.network: has no such kind: 'tor'. The kinds are 'none', 'proxy' (with allow) and 'host'.",
        ),
    ],
)
def test_each_kind_of_mistake_has_its_words(places: Places, text: str, complaint: str) -> None:
    places.user(text)
    assert places.complaints() == [complaint]


def test_a_path_that_is_not_there_is_refused_where_it_is_written(places: Places) -> None:
    places.user('[profiles.main]\nwritable = ["nowhere"]')
    (complaint,) = places.complaints()
    assert complaint.startswith("profiles.main.writable: names what is not there, or cannot be reached: ")
    assert complaint.endswith("/nowhere. Create it, or leave it out.")


def test_a_bad_host_is_refused_with_what_is_wrong_with_it(places: Places) -> None:
    places.user("profiles.main.network = { kind = 'proxy', allow = ['https://example.org'] }")
    (complaint,) = places.complaints()
    assert complaint.startswith("profiles.main.network: ProxyNetwork.allow has an entry that is a URL:")


def test_the_value_of_a_variable_is_never_shown(places: Places) -> None:
    places.user("[profiles.main.env]\nTOKEN = 31337\n'A=B' = 'sesame'")
    assert places.complaints() == [
        "profiles.main.env.TOKEN: should be text, is a whole number.",
        "profiles.main.env.A=B: is not a name of an environment variable. Leave out '=' and what follows.",
    ]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"grants": ["read", "write"]}, "grants[1]: a Worker cannot be granted 'write'."),
        ({"grants": ["exec"]}, "grants[0]: a Worker cannot be granted 'exec'."),
        ({"writable": ["."]}, "writable: a Worker writes nowhere."),
        ({"network": {"kind": "host"}}, "network: a Worker reaches no network."),
    ],
)
def test_nothing_can_widen_a_worker(places: Places, table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(profiles={"worker": table})
    remedy = "Nothing can widen a Worker: leave it out, or use a Branch for this."
    assert str(caught.value) == f"the arguments of load_config: profiles.worker.{complaint} {remedy}"


def test_a_worker_may_be_narrowed_and_told_what_it_has_anyway(places: Places) -> None:
    places.user("[profiles.worker]\ngrants = ['read']\nwritable = []\nnetwork.kind = 'none'")
    assert {kind.value: profile.grants for kind, profile in places.load().profiles.items()}["worker"] == {"read"}


def test_arguments_that_no_toml_has_are_refused_by_the_name_of_their_type(places: Places) -> None:
    with pytest.raises(ConfigError, match=r"profiles\.main\.env: should be a table of text, is a NoneType\."):
        load_config(profiles={"main": {"env": None}})
    for nothing, key in (({"main": None}, "main"), ({"main": {"limits": None}}, r"main\.limits")):
        with pytest.raises(ConfigError, match=rf"profiles\.{key}: should be a table, is a NoneType\."):
            load_config(profiles=nothing)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"profiles\.main: should be a table"):
        load_config(profiles={"main": {1: 2}})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[profiles.main]\n# wall_s is not here\nwall_s = 1", 3),
        ("[profiles.main]\nenv = { a = '''\nwall_s\n''' }\nwall_s = 1", 5),
        ("[profiles.main]\npass_env = [\n  'A',\n  'B',\n]\r\nwall_s = 1", 6),
        ("[profiles]\n[profiles.main]\n'wall_s' = [\n1,\n]", 3),
        ("profiles.worker.limits.wall_s = 1\nprofiles.main.wall_s = 1", 2),
        ("profiles = { main = { proc = true, wall_s = 1 } }", 1),
        ('[profiles.main]\n"wall\\u005fs" = 1', 2),
        ("[[supervisor.credentials.'a.example.com']]\nvalue_env = 'X'\n[profiles]\nmain.wall_s = 1", 4),
        ('profiles.main.env.A = """\n[profiles.main]\nwall_s = 1 # ]"""\nprofiles.main.wall_s = 1', 4),
    ],
)
def test_the_line_is_that_of_the_key_or_is_left_out(places: Places, text: str, line: int | None) -> None:
    places.user(text)
    with pytest.raises(ConfigError) as caught:
        places.load()
    (problem,) = caught.value.problems
    assert (problem.key, problem.line) == ("profiles.main.wall_s", line)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("profiles.main.network = { kind = 'proxy', allow = [['example.org']] }", "profiles.main.network"),
        ("profiles.main.network = { kind = 'proxy', allow_private = [{}] }", "profiles.main.network"),
        (f"profiles.main.network = {{ kind = 'proxy', idle_s = 0x{'f' * 5000} }}", "profiles.main.network"),
        (f"profiles.main.limits.wall_s = 0x{'f' * 5000}", "profiles.main.limits.wall_s"),
        (f"profiles.main.limits.memory_bytes = {1 << 62}", "profiles.main.limits.memory_bytes"),
        ("'[key]' = 1", "[key]"),
        ("profiles.main.'[key]' = 1", "profiles.main.[key]"),
    ],
)
def test_hostile_values_of_a_project_are_told_like_any_other(places: Places, text: str, key: str) -> None:
    places.project(text)
    (complaint,) = places.complaints()
    assert complaint.startswith(f"{key}: ")


def test_the_lines_of_thousands_of_mistakes_take_no_longer_than_the_file(places: Places) -> None:
    """A project's file is a stranger's, and is read before anything starts. If each line was looked for, an hour."""
    places.project("".join(f"k{number} = 1\n" for number in range(6000)))
    with pytest.raises(ConfigError) as caught:
        places.load()
    assert [problem.line for problem in caught.value.problems] == list(range(1, 6001))


@pytest.mark.parametrize("part", ["a", "'='", '"\\""'])
def test_a_key_of_many_parts_is_refused_before_it_is_parsed(places: Places, part: str) -> None:
    text = ".".join([part] * (60_000 // (len(part) + 1)))
    for each in (f"{text} = 1", f"[{text}]", f"a = {{ {text} = 1 }}"):
        places.project(each)
        with pytest.raises(ConfigError, match="is nested too deeply"):
            places.load()


def test_a_network_has_the_fields_of_its_policy() -> None:
    assert NetworkTable.model_fields.keys() == {"kind", *(each.name for each in fields(ProxyNetwork))}
