"""Profiles: values that cross a process boundary and are only ever narrowed."""

import dataclasses
import os
import sys

import pytest

from toolcell_sandbox import CellProfile, Limits
from toolcell_sandbox.profile import CAPABILITIES, python_paths


@pytest.mark.parametrize("kind", ["main", "branch", "worker"])
def test_a_profile_crosses_the_wire_unchanged(kind: str) -> None:
    profile = CellProfile.for_kind(kind).replace(
        env={"A": "b"}, pass_env=("C",), readable=("/srv",), writable=("/srv/w",)
    )
    wire = profile.to_wire()
    assert CellProfile.from_wire(wire) == profile

    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(each) for key, each in value.items())
        return all(map(plain, value)) if isinstance(value, list) else isinstance(value, (str, int, float, bool))

    assert plain(wire)


def test_unknown_fields_kinds_and_capabilities_are_refused() -> None:
    for wire in ({"surprise": 1}, {"network": {"kind": "open"}}, {"limits": {"wall": 3}}):
        with pytest.raises(ValueError):
            CellProfile.from_wire(CellProfile.for_kind("worker").to_wire() | wire)
    with pytest.raises(ValueError, match="'root'"):
        CellProfile(grants=frozenset({"root"}))
    with pytest.raises(ValueError, match="'admin'"):
        CellProfile.for_kind("admin")


@pytest.mark.parametrize("path", ["relative", "/", "/tmp", "/proc", "/dev/", "/usr/..", "/a\0b"])
@pytest.mark.parametrize("field", ["readable", "writable"])
def test_paths_that_cannot_be_bound_are_refused(field: str, path: str) -> None:
    with pytest.raises(ValueError, match=f"Profile.{field}"):
        CellProfile(**{field: (path,)})  # type: ignore[arg-type]


def test_the_kinds_have_the_grants_of_the_contract() -> None:
    assert CellProfile.for_kind("main").grants == CellProfile.for_kind("branch").grants == CAPABILITIES
    assert CellProfile.for_kind("worker").grants == {"read", "memory.read", "web"}
    assert CellProfile.for_kind("worker").is_narrower_than(CellProfile.for_kind("main"))
    assert not CellProfile.for_kind("main").is_narrower_than(CellProfile.for_kind("worker"))


def test_a_worker_has_a_part_of_what_a_main_session_may_use() -> None:
    main, worker = CellProfile.for_kind("main").limits, CellProfile.for_kind("worker").limits
    own = {name: value for name, value in dataclasses.asdict(worker).items() if value != getattr(main, name)}
    assert own == {
        "cpu_s": 15.0, "memory_bytes": 256 << 20, "processes": 16, "open_files": 128, "file_bytes": 16 << 20,
        "scratch_bytes": 16 << 20, "scratch_inodes": 1024, "result_bytes": 4 << 20,
    }  # fmt: skip


def test_narrowing_never_widens() -> None:
    profile = CellProfile.for_kind("worker").replace(readable=("/srv",), writable=("/srv/w",))
    narrow = profile.narrow(grants={"read", "exec"}, limits=Limits(wall_s=5, memory_bytes=1 << 40), writable=())
    assert narrow.grants == {"read"} and narrow.limits.wall_s == 5
    assert narrow.limits.memory_bytes == profile.limits.memory_bytes and narrow.writable == ()
    assert profile.narrow(writable=("/srv/w/deep",), readable=("/srv/w",)).is_narrower_than(profile)
    for name in ("grants", "readable", "writable", "protected"):
        with pytest.raises(ValueError, match=f"Profile.narrow: {name} is not a list of texts"):
            profile.narrow(**{name: "read"})  # type: ignore[arg-type]
    for wider in ({"writable": ("/srv",)}, {"readable": ("/srvother",)}, {"readable": ("/etc",)}):
        with pytest.raises(ValueError, match="does not cover"):
            profile.narrow(**wider)  # type: ignore[arg-type]


def test_a_cells_environment_has_no_secret_unless_it_is_named() -> None:
    host = {"OPENAI_API_KEY": "secret", "HOME": "/root", "PATH": "/evil", "LANG": "de", "PASSED": "yes"}
    environment = CellProfile(pass_env=("PASSED", "ABSENT"), env={"EXTRA": "1"}).environment(host)
    assert set(environment) == {"PATH", "HOME", "TMPDIR", "LANG", "MALLOC_ARENA_MAX", "PASSED", "EXTRA"}
    assert environment["HOME"] == environment["TMPDIR"] == "/tmp" and "/evil" not in environment["PATH"]


def test_a_profile_cannot_be_changed_through_its_mapping() -> None:
    env = {"A": "1"}
    profile = CellProfile(env=env)
    env["B"] = "2"
    assert dict(profile.env) == {"A": "1"}
    with pytest.raises(TypeError):
        profile.env["C"] = "3"  # type: ignore[index]


def test_equal_profiles_are_equal_keys() -> None:
    assert len({CellProfile(env={"A": "1"}), CellProfile(env={"A": "1"}), CellProfile(env={"A": "2"})}) == 2


def test_the_interpreters_own_paths_are_known() -> None:

    paths = python_paths()
    assert (
        sys.prefix in paths and sys.base_prefix in paths and os.path.dirname(os.path.realpath(sys.executable)) in paths
    )
