"""Which settings win, and what they become."""

import dataclasses
import os
from pathlib import Path

import pytest

from toolcell import Config, ConfigError, Limits, NoNetwork, Profile, SessionKind, load_config
from toolcell.rules.toml.schema import ProfileTable
from toolcell_sandbox.network import HostNetwork, ProxyNetwork

from .conftest import Places

MAIN, BRANCH, WORKER = SessionKind


def test_without_any_file_it_is_the_presets(places: Places) -> None:
    config = places.load()
    assert config.profiles == {kind: Profile.for_kind(kind.value) for kind in SessionKind}
    assert (config.max_cells, config.standby, config.allow_missing, config.files) == (None, 1, frozenset(), ())


def test_each_layer_lies_on_the_one_below_and_says_which_files_there_were(places: Places) -> None:
    user = places.user("[profiles.worker.limits]\nwall_s = 9\nprocesses = 9\nopen_files = 99\ncpu_s = 9")
    project = places.project("[profiles.worker.limits]\nwall_s = 8\nprocesses = 8\nopen_files = 88")
    explicit = places.explicit("[profiles.worker.limits]\nwall_s = 11\nprocesses = 7")
    config = load_config(
        places.project_folder, file=explicit, profiles={"worker": {"limits": {"wall_s": 12}}}, supervisor={"standby": 0}
    )
    limits = config.profiles[WORKER].limits
    assert (limits.wall_s, limits.processes, limits.open_files, limits.cpu_s) == (12, 7, 88, 9)
    assert limits.memory_bytes == Profile.for_kind("worker").limits.memory_bytes
    assert config.profiles[MAIN] == Profile.for_kind("main")
    assert config.standby == 0
    assert config.files == (user, project, explicit)


def test_a_settings_file_passed_as_a_directory_is_an_error_that_names_the_argument(places: Places) -> None:
    with pytest.raises(ConfigError, match=r"is a file, not a directory: .*load_config\(file=…\)"):
        load_config(places.explicit('[policy]\nsystem = "deny"'))


def test_tables_are_merged_key_by_key_and_lists_replaced(places: Places) -> None:
    places.user('[profiles.main]\npass_env = ["A", "B"]\nenv = { X = "1", Y = "2" }\n[supervisor]\nmax_cells = 3')
    places.explicit('[profiles.main]\npass_env = ["C"]\n[profiles.main.env]\nY = "3"\n[supervisor]\nstandby = 0')
    config = places.load()
    assert config.profiles[MAIN].pass_env == ("C",)
    assert dict(config.profiles[MAIN].env) == {"X": "1", "Y": "3"}
    assert (config.max_cells, config.standby) == (3, 0)


def test_every_setting_reaches_its_field(places: Places, tmp_path: Path) -> None:
    for name in ("r", "w", "s"):
        (tmp_path / name).mkdir()
    places.explicit(
        """
        [supervisor]
        max_cells = 7
        standby = 0
        allow_missing = ["landlock_scope"]
        approval_timeout_s = 2.5
        model_bytes = 500
        quarantine = "kept"
        [profiles.branch]
        grants = ["read", "exec", "net"]
        readable = ["r"]
        writable = ["w"]
        system = ["s"]
        pass_env = ["LC_ALL"]
        proc = false
        hostname = "cell"
        protected = [".git/hooks", "Makefile"]
        env.TZ = "UTC"
        limits.wall_s = 1.5
        limits.processes = 5
        network = { kind = "proxy", allow = ["example.org", "*.example.com:8443"], max_connections = 3 }
        """
    )
    config = places.load()
    assert (config.max_cells, config.standby, config.allow_missing) == (7, 0, frozenset({"landlock_scope"}))
    assert (config.approval_timeout_s, config.model_bytes) == (2.5, 500)
    assert config.quarantine == str(tmp_path / "kept")
    assert config.profiles[BRANCH] == Profile(
        grants=frozenset({"read", "exec", "net"}),
        readable=(str(tmp_path / "r"),),
        writable=(str(tmp_path / "w"),),
        system=(str(tmp_path / "s"),),
        pass_env=("LC_ALL",),
        proc=False,
        hostname="cell",
        protected=(".git/hooks", "Makefile"),
        env={"TZ": "UTC"},
        limits=Limits(wall_s=1.5, processes=5),
        network=ProxyNetwork(allow=["example.org", "*.example.com:8443"], max_connections=3),
    )


def test_every_field_of_a_profile_can_be_set_but_the_two_that_sessions_and_calls_set() -> None:
    assert ProfileTable.model_fields.keys() == {field.name for field in dataclasses.fields(Profile)} - {
        "cwd",
        "follow_links",
    }


def test_a_network_replaces_the_one_below_as_a_whole(places: Places) -> None:
    places.user('[profiles.main]\nnetwork = { kind = "proxy", allow = ["example.org"] }')
    assert places.load().profiles[MAIN].network == ProxyNetwork(allow=["example.org"])
    places.explicit('[profiles.main.network]\nkind = "host"')
    assert places.load().profiles[MAIN].network == HostNetwork()
    places.explicit('[profiles.main.network]\nkind = "none"')
    assert places.load().profiles[MAIN].network == NoNetwork()


def test_paths_are_relative_to_their_file_and_may_begin_at_the_home(places: Places, tmp_path: Path) -> None:
    for folder in (places.user_folder / "toolcell" / "here", tmp_path / "home" / "data", tmp_path / "up"):
        folder.mkdir(parents=True)
    places.user('[profiles.main]\nreadable = ["here", "~/data", "../../up", "here/"]')
    readable = places.load().profiles[MAIN].readable
    assert readable == (str(places.user_folder / "toolcell/here"), str(tmp_path / "home/data"), str(tmp_path / "up"))


def test_the_user_s_file_is_where_xdg_says_or_below_the_home(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_file = tmp_path / "home/.config/toolcell/toolcell.toml"
    home_file.parent.mkdir(parents=True)
    home_file.write_text("supervisor.max_cells = 5")
    assert load_config().max_cells is None
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert load_config().max_cells == 5
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert load_config().max_cells == 5


def test_no_directory_is_looked_at_that_was_not_named(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.project("profiles.worker.limits.wall_s = 1")
    monkeypatch.chdir(places.project_folder)
    assert load_config().profiles[WORKER].limits.wall_s == 30
    assert load_config(".").profiles[WORKER].limits.wall_s == 1


def test_a_config_cannot_be_changed(places: Places) -> None:
    config = places.load()
    with pytest.raises(TypeError):
        config.profiles[MAIN] = Profile()  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.standby = 0  # type: ignore[misc]


def test_a_named_file_must_be_there_and_the_others_need_not(places: Places, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml cannot be read: No such file or directory\. Mend the path"):
        load_config(file=tmp_path / "missing.toml")
    assert isinstance(load_config(tmp_path / "nowhere"), Config)


def test_a_file_that_cannot_be_seen_is_refused_and_not_taken_for_none(places: Places) -> None:
    """It may say less than the presets do."""
    user = places.user_folder / "toolcell" / "toolcell.toml"
    user.parent.mkdir()
    for file, target in ((user, "nowhere"), (user, user.name), (places.project_folder / user.name, "nowhere")):
        file.symlink_to(target)
        with pytest.raises(ConfigError, match=r"cannot be read: .*\. Mend the path or its permissions"):
            places.load()
        file.unlink()


def test_a_user_without_a_home_has_no_settings_in_the_directory_of_a_project(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_one(_uid: int) -> None:
        raise KeyError("no entry")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", no_one)
    monkeypatch.chdir(places.project_folder)
    planted = places.project_folder / "~/.config/toolcell/toolcell.toml"
    planted.parent.mkdir(parents=True)
    planted.write_text("supervisor.allow_missing = ['landlock']")
    config = load_config(places.project_folder)
    assert (config.allow_missing, config.files) == (frozenset(), ())


def test_a_path_that_no_file_can_have_is_refused(places: Places) -> None:
    for path in ("a\0b", "a\ud800b"):
        with pytest.raises(ConfigError, match="is not a path"):
            load_config(file=path)
        with pytest.raises(ConfigError, match="is not a path"):
            load_config(directory=path)


def test_what_is_not_a_small_text_file_is_refused_and_never_waited_for(places: Places, tmp_path: Path) -> None:
    project = places.project_folder / "toolcell.toml"
    for make, said in (
        (lambda: os.mkfifo(project), "is not a file"),
        (lambda: project.symlink_to("/dev/zero"), "is not a file"),
        (lambda: project.write_text("#" * 70_000), "is larger than 65536 bytes"),
        (lambda: project.write_bytes(b"a = '\xff'"), "is not TOML"),
        (lambda: project.write_text("[profiles\n"), r"is not TOML: .*\(at line 1, column 10\)"),
        (lambda: project.write_text("a = " + "[" * 20_000), "is nested too deeply|is not TOML"),
    ):
        make()
        with pytest.raises(ConfigError, match=said):
            places.load()
        project.unlink()


def test_protected_names_are_added_and_lifted_by_name(places: Places) -> None:
    default = Profile.for_kind("main").protected
    for text, wanted in (
        ('["...", "!.envrc", "Makefile"]', (*(name for name in default if name != ".envrc"), "Makefile")),
        ("[]", ()),
        ('["Makefile"]', ("Makefile",)),
    ):
        places.user(f"[profiles.main]\nprotected = {text}")
        assert places.load().profiles[MAIN].protected == wanted
    places.user('[profiles.main]\nprotected = ["...", "!.envrc"]')
    places.explicit('[profiles.main]\nprotected = ["...", ".envrc"]')
    assert set(places.load().profiles[MAIN].protected) == set(default)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('["...", "!.envr"]', "There is no protected name '.envr' to lift. Did you mean '.envrc'?"),
        ('["../x"]', "is no pattern of names: '../x'"),
        ('["//etc"]', "is no pattern of names: '//etc'"),
        ("[1]", "should be text, is a whole number"),
    ],
)
def test_a_protected_name_that_is_none_is_told_with_its_line(places: Places, text: str, complaint: str) -> None:
    places.user(f"[profiles.main]\nprotected = {text}")
    (said,) = places.complaints()
    assert said.startswith("profiles.main.protected") and complaint in said
