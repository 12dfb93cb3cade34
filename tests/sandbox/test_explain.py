"""Profiles in plain words."""

import dataclasses

import pytest

from toolcell_sandbox import CellProfile, Limits, explain
from toolcell_sandbox.explain import BROKERED, amount
from toolcell_sandbox.network import HostNetwork, ProxyNetwork
from toolcell_sandbox.profile import CAPABILITIES


def words(profile: CellProfile) -> str:
    """The explanation with single spaces, however it was wrapped."""
    return " ".join(explain(profile).split())


def test_a_profile_explains_itself_as_the_function_does() -> None:
    profile = CellProfile.for_kind("worker")
    assert profile.explain() == explain(profile)
    assert max(map(len, profile.explain().splitlines())) <= 100


def test_what_may_be_read_and_written_follows_the_grants() -> None:
    profile = CellProfile.for_kind("main").replace(readable=("/srv/data",), writable=("/srv/out",), system=("/usr",))
    assert "reads the workspace, /srv/data, /usr, nothing else" in words(profile)
    assert "writes the workspace, /srv/out, its own /tmp" in words(profile)
    reader = profile.replace(grants=frozenset({"read"}))
    assert "reads the workspace, /srv/data, /srv/out, /usr, nothing else" in words(reader)
    assert "writes its own /tmp" in words(reader)
    bare = profile.replace(grants=frozenset(), readable=(), writable=())
    assert "reads /usr, nothing else" in words(bare)


def test_programs_are_run_only_with_the_grant() -> None:
    assert "runs any program that it can read" in words(CellProfile.for_kind("main"))
    assert "runs no program: no execve" in words(CellProfile.for_kind("worker"))


def test_every_capability_has_its_words() -> None:
    assert BROKERED.keys() == CAPABILITIES - {"read", "write", "exec", "net"}
    for name, text in BROKERED.items():
        assert text in words(CellProfile(grants=frozenset({name})))
        assert text not in words(CellProfile())
    assert "asks for nothing" in words(CellProfile())


def test_each_network_policy_is_told_and_only_as_far_as_it_is_granted() -> None:
    net = CellProfile(grants=frozenset({"net"}))
    assert "network none: no interface, and no socket can be made environment" not in words(net)
    assert "network none: no interface, and no socket can be made asks for" in words(net)
    proxy = ProxyNetwork(allow=["example.org"], allow_private=["127.0.0.1:8080"], max_connections=3, max_bytes=1 << 20)
    told = words(net.replace(network=proxy))
    assert "through a proxy, to example.org, 127.0.0.1:8080 (may be a private address)" in told
    assert "3 connections at a time, 1 MiB each way" in told
    assert "through a proxy, to no host" in words(net.replace(network=ProxyNetwork()))
    assert "nothing is checked" in words(net.replace(network=HostNetwork()))
    assert "counts for nothing without the grant 'net'" in words(CellProfile(network=HostNetwork()))


def test_names_of_variables_are_told_and_values_never() -> None:
    profile = CellProfile(env={"TOKEN": "sesame", "PATH": "/sesame"}, pass_env=("LC_ALL", "TOKEN"))
    told = words(profile)
    assert "sesame" not in told
    assert "HOME, LANG, MALLOC_ARENA_MAX, TMPDIR, PATH (set), TOKEN (set)," in told
    assert "LC_ALL (the supervisor's, if it has one)" in told
    assert told.count("TOKEN") == told.count("PATH") == 1


@pytest.mark.parametrize("field", dataclasses.fields(Limits), ids=lambda field: str(field.name))
def test_every_limit_is_told_with_its_unit(field: "dataclasses.Field[object]") -> None:
    told = words(CellProfile(limits=Limits().replace(**{field.name: 12345})))
    unit = " s" if field.name.endswith("_s") else " bytes" if field.name.endswith("_bytes") else ""
    assert f" 12345{unit} " in told


def test_amounts_are_in_the_largest_unit_that_is_whole() -> None:
    assert [amount("file_bytes", size) for size in (1, 1023, 1024, 1536, 1 << 20, 3 << 30, 5 << 40, 1 << 50)] == [
        "1 bytes", "1023 bytes", "1 KiB", "1536 bytes", "1 MiB", "3 GiB", "5 TiB", "1024 TiB",
    ]  # fmt: skip
    assert (amount("wall_s", 0.25), amount("processes", 64)) == ("0.25 s", "64")


def test_without_proc_it_says_so() -> None:
    assert "processes no /proc" in words(CellProfile(proc=False))
