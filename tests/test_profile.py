"""The profile of a session: that of its cells, and the rules for HTTP requests, which no cell gets."""

import dataclasses
from typing import Any

import pytest

import toolcell
from toolcell import Limits, Profile
from toolcell.rules.profile import MOST_CHANGED_FILES
from toolcell_sandbox import CellProfile

RULES = ("GET https://api.example.com", "* https://127.0.0.1:8080")


def words(profile: CellProfile) -> str:
    """The explanation with single spaces, however it was wrapped."""
    return " ".join(profile.explain().split())


def test_it_is_the_one_that_programs_import() -> None:
    from toolcell.rules.profile import Profile as here

    assert toolcell.Profile is here


def test_all_ways_to_another_profile_keep_the_rules() -> None:
    profile = Profile.for_kind("main").replace(http=RULES)
    narrow = profile.lifting(".envrc").narrow(grants={"read", "http"}, limits=Limits(wall_s=1))
    assert type(narrow) is Profile and narrow.http == RULES and narrow.limits.wall_s == 1
    assert profile != Profile.for_kind("main") and len({profile, profile.replace(cwd="/"), Profile(http=RULES)}) == 3


# -- rules ------------------------------------------------------------------------------------------------------------


def test_rules_are_read_at_once_and_equal_ones_are_there_once() -> None:
    assert Profile(http=("GET api.example.com", "* 127.0.0.1:8080", RULES[0])).http == RULES
    listed: Any = [RULES[0]]
    assert Profile(http=listed).http == RULES[:1]


@pytest.mark.parametrize("text", ["GET", "api.example.com", "TRACE a.example.com", "GET *.a.example.com private"])
def test_what_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(toolcell.UsageError, match=r"^Profile\.http has an? .*Write it like 'GET api\.example\.com'"):
        Profile(http=(text,))


@pytest.mark.parametrize("rule", [7, None, b"GET a.example.com"])
def test_what_is_no_text_is_refused(rule: Any) -> None:
    with pytest.raises(toolcell.UsageError, match=r"^Profile\.http holds .*, which is not a text\."):
        Profile(http=(rule,))


@pytest.mark.parametrize("value", ["GET api.example.com", b"GET api.example.com", 7, None])
def test_what_is_no_list_is_refused(value: Any) -> None:
    with pytest.raises(toolcell.UsageError, match=r"^Profile\.http is not a list of rules: .* Put the one in a list\."):
        Profile(http=value)


def test_rules_hold_only_with_the_grant() -> None:
    main = Profile.for_kind("main").replace(http=RULES)
    without = main.replace(grants=frozenset({"read"}))
    assert main.requests == main.http and without.requests == () and without.http == RULES
    assert without.is_narrower_than(Profile.for_kind("main")), "rules count for nothing without the grant"
    assert not main.is_narrower_than(Profile.for_kind("main"))


# -- narrowing --------------------------------------------------------------------------------------------------------


def test_rules_are_narrowed_and_never_widened() -> None:
    main = Profile.for_kind("main").replace(http=("GET,POST https://api.example.com", "GET *.example.org"))
    narrow = main.narrow(http=["GET api.example.com/v1"])
    assert narrow.http == ("GET https://api.example.com/v1",) and narrow.is_narrower_than(main)
    assert main.narrow(http=[]).http == ()
    for wider in (
        "DELETE api.example.com",
        "GET http://api.example.com",
        "GET example.org",
        "GET api.example.com private",
    ):
        with pytest.raises(toolcell.UsageError, match="rule for HTTP requests that the profile does not cover"):
            main.narrow(http=[wider])
        assert not main.replace(http=(wider,)).is_narrower_than(main)
    assert main.narrow(grants={"read"}, http=["GET a.example.com"]).requests == ()


def test_the_fields_of_its_cells_are_narrowed_too() -> None:
    main = Profile.for_kind("main").replace(http=RULES, writable=("/srv",))
    narrow = main.narrow(grants={"http", "write"}, writable=["/srv/w"], limits=Limits(wall_s=1), protected=["Makefile"])
    assert narrow.grants == {"http", "write"} and narrow.writable == ("/srv/w",) and narrow.limits.wall_s == 1
    assert narrow.protected == (*main.protected, "Makefile") and narrow.requests == RULES
    assert main.narrow(network=toolcell.NoNetwork(), readable=["/srv"]).readable == ("/srv",)
    with pytest.raises(toolcell.UsageError, match="a path that the profile does not cover"):
        main.narrow(readable=["/etc"])
    with pytest.raises(toolcell.UsageError, match="a network that the profile does not cover"):
        main.narrow(network=toolcell.HostNetwork())
    assert not main.replace(proc=True).is_narrower_than(main.replace(proc=False))


@pytest.mark.parametrize("name", ["grants", "readable", "writable", "http", "protected"])
def test_one_text_is_no_list_of_them(name: str) -> None:
    with pytest.raises(toolcell.UsageError, match=f"^Profile.narrow: {name} is not a list of texts: 'read'"):
        Profile.for_kind("main").narrow(**{name: "read"})  # type: ignore[arg-type]


def test_a_profile_of_a_cell_alone_allows_no_requests() -> None:
    cell = CellProfile.for_kind("main")
    assert Profile.for_kind("main").is_narrower_than(cell)
    assert not Profile.for_kind("main").replace(http=RULES).is_narrower_than(cell)


# -- cells ------------------------------------------------------------------------------------------------------------


def test_a_cell_gets_every_field_but_the_rules() -> None:
    main = Profile.for_kind("main").replace(http=RULES, readable=("/srv",), env={"A": "b"}, hostname="h", proc=False)
    cell = main.for_cell(cwd="/srv")
    assert type(cell) is CellProfile and cell.cwd == "/srv"
    for field in dataclasses.fields(CellProfile):
        assert field.name == "cwd" or getattr(cell, field.name) == getattr(main, field.name)
    assert {field.name for field in dataclasses.fields(main)} - vars(cell).keys() == {
        "http",
        "web",
        "channel",
        "exceptions",
        "changes",
        "changed_files",
    }


def test_no_rule_crosses_the_wire() -> None:
    plain = Profile.for_kind("main").replace(env={"A": "b"})
    main = plain.replace(http=RULES)
    assert main.to_wire() == plain.to_wire() == main.for_cell().to_wire()
    assert main.to_wire(short=True) == main.for_cell().to_wire(short=True)
    assert CellProfile().changed_from_wire(main.to_wire()) == main.for_cell()
    assert Profile.from_wire(main.to_wire()) == plain
    for kind in (CellProfile, Profile):
        with pytest.raises(ValueError, match=r"Profile has no such field: 'http'\. Remove it\."):
            kind.from_wire({"http": []})


# -- in words ---------------------------------------------------------------------------------------------------------


def test_a_profile_says_which_requests_are_made() -> None:
    main = Profile.for_kind("main")
    assert "requests none: no host is listed environment" in words(main)
    told = words(main.replace(http=("GET,POST api.example.com/v1", "GET 10.0.0.1", "GET in.example.com private")))
    assert "GET POST https://api.example.com/v1 and below, GET https://10.0.0.1 (may be a private address)" in told
    assert "GET https://in.example.com (may be a private address) environment" in told
    without = main.replace(http=("GET api.example.com",), grants=frozenset({"read"}))
    assert "its rules have no effect without the grant 'http'" in words(without)


def test_the_rest_is_said_as_of_a_cell() -> None:
    profile = Profile.for_kind("worker")
    lines = [line for line in profile.explain().splitlines() if not line.startswith("requests ")]
    assert lines == profile.for_cell().explain().splitlines()


@pytest.mark.parametrize("most", [0, MOST_CHANGED_FILES + 1])
def test_the_number_of_changed_files_has_bounds(most: int) -> None:
    assert [Profile(changed_files=each).changed_files for each in (1, MOST_CHANGED_FILES)] == [1, MOST_CHANGED_FILES]
    with pytest.raises(ValueError, match="from 1 to"):
        Profile(changed_files=most)


# -- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("replace", {"writeable": ()}, "Profile takes no 'writeable'. Did you mean 'writable'?"),
        ("narrow", {"htp": ()}, "Profile.narrow takes no 'htp'. Did you mean 'http'?"),
        ("lifting", {"name": ".envrc"}, "Profile.lifting takes no 'name'. Did you mean 'names'?"),
    ],
)
def test_an_unknown_argument_is_told_by_the_name_that_users_write(
    name: str, values: dict[str, object], said: str
) -> None:
    with pytest.raises(toolcell.UsageError) as caught:
        getattr(Profile(), name)(**values)
    assert str(caught.value) == said
