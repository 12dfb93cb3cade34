"""The paths that a cell sees, and what protects them. `mechanisms/test_mounts.py` has them mounted."""

import os
from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox import CellProfile, HostNetwork, Identity, SandboxError
from toolcell_sandbox.view import Bind, Bound, View, above, find_system, plan, resolve, rest

ROOT = Identity("root", 70000, 70000)


def test_the_plan_keeps_only_the_mounts_that_matter(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/bb"):
        (tmp_path / name).mkdir(parents=True)
    top = str(tmp_path)
    profile = CellProfile(system=(), readable=(f"{top}/a", f"{top}/a/b/c", f"{top}/a/bb"), writable=(f"{top}/a/b",))
    binds = [(bind.path.removeprefix(top), bind.writable) for bind in plan(profile, ROOT).binds]
    assert binds == [("/a", False), ("/a/b", True), ("/a/b/c", False)]


def test_a_path_that_is_both_readable_and_writable_is_writable(tmp_path: Path) -> None:
    profile = CellProfile(system=(), readable=(str(tmp_path),), writable=(str(tmp_path),))
    assert [bind.writable for bind in plan(profile, ROOT).binds] == [True]


def test_a_link_to_a_reserved_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to("/")
    with pytest.raises(Exception, match="is really /"):
        plan(CellProfile(system=(), readable=(str(tmp_path / "root"),)), ROOT)


def test_resolve_reports_every_link_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "l").symlink_to("d")
    (tmp_path / "d" / "up").symlink_to("../d")
    top = os.path.realpath(tmp_path)
    assert resolve(f"{top}/l/up/.") == (f"{top}/d", [(f"{top}/l", "d"), (f"{top}/d/up", "../d")])
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(Exception, match="too many symbolic links"):
        resolve(f"{top}/loop")


def test_what_is_known_of_the_system_holds_until_one_missing_path_is_there(tmp_path: Path) -> None:
    missing = (tmp_path / "a", tmp_path / "b")
    profile = CellProfile(system=tuple(map(str, missing)))
    found = find_system(profile, ROOT)
    assert found.missing == profile.system and found.holds()
    missing[0].touch()
    assert not found.holds()


def test_a_system_path_that_is_not_open_to_all_is_mapped_to_its_owner(tmp_path: Path) -> None:
    expected: dict[str, object] = {}
    for name, mode in (("open", 0o755), ("listed only", 0o754), ("closed", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
        info = (tmp_path / name).stat()
        expected[str(tmp_path / name)] = None if mode == 0o755 else (info.st_uid, info.st_gid)
    binds = find_system(CellProfile(system=tuple(expected)), ROOT).binds
    assert {bind.path: bind.owner for bind in binds} == expected


def test_with_the_hosts_network_a_cell_sees_what_the_c_library_resolves_names_by() -> None:
    read = {f"/etc/{name}" for name in ("resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "services")}
    profile = CellProfile(system=(), grants=frozenset({"net"}), network=HostNetwork())
    found = find_system(profile, ROOT)
    missing = {path for path in read if not os.path.exists(path)}
    assert {bind.path for bind in found.binds} == {os.path.realpath(path) for path in read - missing}
    assert {*found.missing} == missing


def inode(path: Path) -> tuple[int, int]:
    info = path.lstat()
    return info.st_dev, info.st_ino


def binds(profile: CellProfile, *protected: Bound) -> list[tuple[str, bool]]:
    top = profile.writable[0]
    return [(bind.path.removeprefix(top), bind.writable) for bind in plan(profile, ROOT, protected).binds]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A writable tree with a repository."""
    for name in (".git/hooks", "src"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".git/config").touch()
    return tmp_path


def test_what_is_protected_is_read_only_and_a_pin_is_a_mount_that_stays_writable(tree: Path) -> None:
    profile = CellProfile(system=(), writable=(str(tree),))
    protected = [
        Bound(str(tree / name), pin, inode(tree / name))
        for name, pin in ((".git", True), (".git/config", False), (".git/hooks", False))
    ]
    assert binds(profile, *protected) == [
        ("", True),
        ("/.git", True),
        ("/.git/config", False),
        ("/.git/hooks", False),
    ]


def test_a_protected_path_that_has_changed_since_is_left_to_the_audit(tree: Path) -> None:
    profile = CellProfile(system=(), writable=(str(tree),))
    was = Bound(str(tree / ".git/config"), False, inode(tree / "src"))
    gone = Bound(str(tree / ".git/index"), False, inode(tree / "src"))
    assert binds(profile, was, gone) == [("", True)]


def test_a_protected_path_may_show_another_file(tree: Path, tmp_path: Path) -> None:
    shown = tmp_path / "src/shown"
    shown.touch()
    bound = Bound(str(tree / ".git/config"), False, inode(tree / ".git/config"), source=str(shown))
    last = plan(CellProfile(system=(), writable=(str(tree),)), ROOT, [bound]).binds[-1]
    assert (last.path, last.source, last.inode, last.writable) == (bound.path, str(shown), inode(shown), False)


def test_a_path_that_is_no_file_and_no_directory_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SandboxError, match="is neither a file nor a directory"):
        plan(CellProfile(system=(), readable=(str(tmp_path / "fifo"),)), ROOT)


def test_a_path_that_became_a_link_is_refused_where_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    profile = CellProfile(system=(), writable=(str(tmp_path / "link"),))
    assert [bind.path for bind in plan(profile, ROOT).binds] == [str(tmp_path / "real")]
    with pytest.raises(SandboxError, match="has become a symbolic link"):
        plan(profile.replace(follow_links=False), ROOT)


def test_links_are_made_again_where_no_bind_brings_them(tmp_path: Path) -> None:
    (tmp_path / "real/below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    profile = CellProfile(system=(), readable=(str(tmp_path / "link/below"),))
    assert plan(profile, ROOT).links == ((str(tmp_path / "link"), "real"),)
    both = profile.replace(readable=(str(tmp_path), str(tmp_path / "link/below")))
    assert plan(both, ROOT).links == ()


def test_the_witness_is_a_path_of_the_host_that_no_bind_shows() -> None:
    there = plan(CellProfile(system=()), ROOT).witness
    assert there and os.path.lexists(there)
    shown = plan(CellProfile(system=(), readable=(there,)), ROOT).witness
    assert shown != there


@pytest.mark.parametrize(
    ("path", "places", "found"),
    [
        ("/a/b/c", {"/a", "/a/b"}, "/a/b"),
        ("/a/b/c", {"/a/b/c"}, ""),
        ("/ab", {"/a"}, ""),
        ("/a", set[str](), ""),
        ("/a//b", {"/a/"}, "/a/"),
    ],
)
def test_the_innermost_directory_above_a_path_is_found(path: str, places: set[str], found: str) -> None:
    assert above(path, places) == found


def test_binds_can_be_mounted_first_unless_another_one_would_hide_them() -> None:
    inner, outer, other = (Bind(path, False, True, (1, 2), None) for path in ("/a/b", "/a", "/c"))

    def left(first: list[Bind], *planned: Bind) -> Any:
        found = rest(View(planned, (), ""), first)
        return None if found is None else [bind.path for bind in found]

    assert left([outer], outer, inner, other) == ["/a/b", "/c"]
    assert left([inner], outer, inner) is None, "the outer one would hide it"
    assert left([inner], outer) is None, "it is not of this view"
    assert left([Bind("/a", True, True, (1, 2), None)], outer) is None, "it is another mount"


@pytest.mark.parametrize("owner", [None, (1000, 1001)])
def test_a_view_crosses_the_wire_with_any_name(owner: tuple[int, int] | None) -> None:
    bind = Bind("/caf\udce9", True, False, (1, 2), owner, "/a\nb")
    view = View((bind,), (("/l\udcff", "../x"),), "/root")
    assert View.from_wire(view.to_wire()) == view and Bind.from_wire(bind.to_wire()) == bind
    bound = Bound("/caf\udce9", True, (1, 2), 5, "/x")
    assert Bound.from_wire(bound.to_wire()) == bound
