"""Rules for pages: their text, what they cover, and what is narrower."""

import pytest

import toolcell
from toolcell import Profile
from toolcell.rules.pages import WebRule, common, is_narrower, rules_of


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("*", "*"),
        ("seen", "seen"),
        ("Docs.Example.org", "docs.example.org"),
        ("*.example.com:8443", "*.example.com:8443"),
        ("seen docs.example.org", "seen docs.example.org"),
        ("[2001:DB8::1]:443", "[2001:db8::1]:443"),
    ],
)
def test_a_rule_is_read_and_said_in_one_way(text: str, same: str) -> None:
    assert str(WebRule.parse(text)) == same
    assert WebRule.parse(same) == WebRule.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "seen *", "seen seen x", "https://example.org", "example.org/path", "*.com", "a b", "SEEN x", "sen x", 3],
)
def test_what_is_no_rule_is_refused_with_examples(text: object) -> None:
    with pytest.raises(toolcell.UsageError, match=r"^Profile\.web .*'docs\.example\.org'|^Profile\.web holds 3"):
        Profile(web=(text,))  # type: ignore[arg-type]


def test_a_host_covers_its_own_ports_and_names() -> None:
    docs, below, port = map(WebRule.parse, ("example.org", "*.example.org", "example.org:8080"))
    assert docs.covers("example.org", 443) and docs.covers("example.org", 80) and not docs.covers("example.org", 8080)
    assert below.covers("a.example.org", 443) and not below.covers("example.org", 443)
    assert port.covers("example.org", 8080) and not port.covers("example.org", 443)
    assert WebRule.parse("*").covers("anything.example.com", 81)


@pytest.mark.parametrize(
    ("narrow", "wide", "holds"),
    [
        (["example.org"], ["*"], True),
        (["seen"], ["*"], True),
        (["*"], ["seen"], False),
        (["example.org"], ["seen"], False),
        (["seen example.org"], ["seen"], True),
        (["seen example.org"], ["example.org"], True),
        (["seen"], ["seen example.org"], False),
        (["a.example.org"], ["*.example.org", "seen"], True),
        ([], ["seen"], True),
        (["seen"], [], False),
    ],
)
def test_narrower_is_what_allows_no_other_page(narrow: list[str], wide: list[str], holds: bool) -> None:
    assert is_narrower(narrow, wide) is holds
    main = Profile.for_kind("main")
    assert main.replace(web=narrow).is_narrower_than(main.replace(web=wide)) is holds


def test_the_common_rules_are_within_both_sides() -> None:
    sides = ["*", "seen", "example.org", "*.example.org", "a.example.org:8080", "seen a.example.org", "example.com"]
    for one in sides:
        for two in sides:
            both = common([one], [two])
            assert is_narrower(both, [one]) and is_narrower(both, [two]), (one, two, both)
            assert both == common([two], [one])
    assert common(["seen"], ["*.example.org"]) == ("seen *.example.org",)
    assert common(["example.org"], ["example.com"]) == ()


def test_a_profile_takes_one_rule_as_text_and_narrows_to_covered_rules() -> None:
    main = Profile.for_kind("main")
    assert main.web == ("*",) and Profile(web="seen").web == ("seen",) == Profile(web=["seen", "seen"]).web
    assert main.narrow(web="seen").narrow(web=["seen example.org"]).web == ("seen example.org",)
    with pytest.raises(toolcell.UsageError, match="a rule for pages that the profile does not cover"):
        main.narrow(web="seen").narrow(web=["example.org"])
    assert main.narrow(grants={"read"}, web=["example.org"]).pages == ()


def test_a_profile_says_which_pages_are_fetched() -> None:
    main = Profile.for_kind("main")
    assert "\npages " not in main.explain()
    told = " ".join(main.replace(web=["docs.example.org", "seen"]).explain().split())
    assert "pages docs.example.org, links of pages that were fetched and of searches" in told


def test_duplicates_are_one_rule() -> None:
    assert rules_of(["a.example.org", "A.example.org", "a.example.org."]) == rules_of(["a.example.org"])
