"""The accounts of a cell: its user is found by name, and the host's users are not."""

import resource
from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox import CellProfile, etc
from toolcell_sandbox.identity import Identity

LOOK = """
import grp, json, os, pwd
me = pwd.getpwuid(os.getuid())
groups = {each.gr_gid: each.gr_name for each in grp.getgrall()}
print(json.dumps([
    me.pw_name, me.pw_dir, os.path.expanduser("~toolcell"), groups[os.getgid()], groups[0],
    sorted(each.pw_name for each in pwd.getpwall()), [os.stat(path).st_mode & 0o777 for path in PATHS],
]))
"""
PATHS = 'PATHS = ["/etc/passwd", "/etc/group"]\n'
OURS = ["nobody", "root", "toolcell"]


def test_the_user_of_a_cell_has_an_account_and_no_user_of_the_host_has(any_cell: Any) -> None:
    assert any_cell(PATHS + LOOK).value == ["toolcell", "/tmp", "/tmp", "toolcell", "root", OURS, [0o444, 0o444]]


@pytest.mark.parametrize(("home", "shown"), [("/work", "/work"), ("/x:0:0::/", "/tmp"), ("/x\nroot::0:0::/:", "/tmp")])
def test_its_home_is_the_profiles_and_one_that_is_no_field_is_left_out(any_cell: Any, home: str, shown: str) -> None:
    profile = CellProfile.for_kind("main").replace(env={"HOME": home})
    assert any_cell(PATHS + LOOK, profile=profile).value[1:3] == [shown, shown]


def test_a_profile_that_shows_the_hosts_accounts_shows_those(any_cell: Any) -> None:
    code = 'import json; print(json.dumps([open("/etc/passwd").read(), open("/etc/group").read().split(":")[0]]))'
    profile = CellProfile.for_kind("main").replace(readable=("/etc/passwd",))
    with open("/etc/passwd") as file:
        assert any_cell(code, profile=profile).value == [file.read(), "root"]


def test_accounts_that_could_not_be_written_whole_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etc, "ACCOUNTS", (str(tmp_path / "passwd"), str(tmp_path / "group")))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))  # a write that is cut short, as on a full file system
    try:
        with pytest.raises(OSError, match="too large"):
            etc.make_accounts(Identity("root", 0, 0), "/tmp", ())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
