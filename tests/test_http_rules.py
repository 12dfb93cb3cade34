"""Rules for HTTP requests: how they are read, what they cover, and that they are only ever narrowed."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.rules.hosts import METHODS, HttpRule, common, is_narrower, rules_of


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("GET api.example.com", "GET https://api.example.com"),
        ("POST,GET API.Example.com.:443/", "GET,POST https://api.example.com"),
        ("GET,POST https://api.example.com/v1/", "GET,POST https://api.example.com/v1"),
        ("* http://127.0.0.1:8080", "* http://127.0.0.1:8080"),
        (",".join(reversed(METHODS)) + " a.example.com", "* https://a.example.com"),
        ("GET http://a.example.com:80", "GET http://a.example.com"),
        ("GET *.example.com:8443/a/b", "GET https://*.example.com:8443/a/b"),
        ("GET https://[2001:DB8::1]:443", "GET https://[2001:db8::1]"),
        ("GET intranet.example.com private", "GET https://intranet.example.com private"),
        ("GET 10.0.0.1 private", "GET https://10.0.0.1"),  # an address names itself
        ("GET bücher.example.com", "GET https://xn--bcher-kva.example.com"),
    ],
)
def test_a_rule_is_read_and_written_in_one_way(text: str, canonical: str) -> None:
    assert str(HttpRule.parse(text)) == canonical
    assert HttpRule.parse(canonical) == HttpRule.parse(text)
    assert rules_of((text, canonical)) == (HttpRule.parse(text),)


@pytest.mark.parametrize(
    "text",
    [
        "api.example.com", "GET", "", " ", "GET ", "GET  a.example.com", "get a.example.com",
        "GET a.example.com public",
        "GET a.example.com private x", "TRACE a.example.com", "CONNECT a.example.com", "GET, a.example.com",
        "GET,* a.example.com",
        "GET ftp://a.example.com", "GET //a.example.com", "GET https:a.example.com", "GET https://", "GET https:///x",
        "GET user@a.example.com", "GET user:pw@a.example.com", "GET a.example.com:0", "GET a.example.com:x",
        "GET a.example.com:65536",
        "GET a.example.com/../x", "GET a.example.com/./x", "GET a.example.com/a//b", "GET a.example.com/x?y",
        "GET a.example.com#x",
        "GET a.example.com/a\\b",
        "GET a.example.com\r\nX", "GET a.example.com/\n", "GET *.com", "GET *", "GET a.*.example.com",
        "GET *.127.0.0.1",
        "GET *.a.example.com private", "GET 127.1", "GET 0x7f000001", "GET 2130706433", "GET straße.example.com",
        "GET\ta.example.com",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"^Profile\.http has an? .*Write it like 'GET api\.example\.com'"):
        HttpRule.parse(text)


RULE = HttpRule.parse("GET,POST https://api.example.com/v1")


@pytest.mark.parametrize(
    ("method", "scheme", "host", "port", "path", "covered"),
    [
        ("GET", "https", "api.example.com", 443, "/v1", True),
        ("POST", "https", "api.example.com", 443, "/v1/users/1", True),
        ("DELETE", "https", "api.example.com", 443, "/v1", False),
        ("HEAD", "https", "api.example.com", 443, "/v1", False),
        ("GET", "http", "api.example.com", 443, "/v1", False),
        ("GET", "http", "api.example.com", 80, "/v1", False),
        ("GET", "https", "api.example.com", 8443, "/v1", False),
        ("GET", "https", "example.com", 443, "/v1", False),
        ("GET", "https", "x.api.example.com", 443, "/v1", False),
        ("GET", "https", "api.example.com.evil.example.org", 443, "/v1", False),
        ("GET", "https", "evilapi.example.com", 443, "/v1", False),
        ("GET", "https", "api.example.com", 443, "/", False),
        ("GET", "https", "api.example.com", 443, "/v10", False),
        ("GET", "https", "api.example.com", 443, "/V1", False),
        ("GET", "https", "api.example.com", 443, "//v1", False),
    ],
)
def test_a_rule_covers_its_methods_origin_and_path_and_nothing_else(
    method: str, scheme: str, host: str, port: int, path: str, covered: bool
) -> None:
    assert RULE.covers(method, scheme, host, port, path) == covered


def test_a_star_covers_what_is_below_and_not_the_name_itself() -> None:
    rule = HttpRule.parse("GET *.example.com")
    assert rule.covers("GET", "https", "a.example.com", 443, "/")
    assert rule.covers("GET", "https", "a.b.example.com", 443, "/")
    assert not rule.covers("GET", "https", "example.com", 443, "/")
    assert not rule.covers("GET", "https", "notexample.com", 443, "/")


PARTS = {
    "methods": ["GET", "GET,POST", "POST,DELETE", "*"],
    "places": [
        "a.example.com", "*.example.com", "*.a.example.com", "a.example.com/v1", "a.example.com/v1/x",
        "http://a.example.com",
        "a.example.com:8443", "10.0.0.1", "10.0.0.1/v1",
    ],
}  # fmt: skip
RULES = [f"{methods} {place}" for methods, place in itertools.product(*PARTS.values())] + [
    "GET a.example.com private",
    "* a.example.com/v1 private",
]
REQUESTS = list(
    itertools.product(
        ("GET", "POST", "DELETE", "HEAD"),
        ("https", "http"),
        ("a.example.com", "b.a.example.com", "b.example.com", "10.0.0.1", "example.com"),
        (443, 80, 8443),
        ("/", "/v1", "/v1/x", "/v1/x/y", "/v2"),
    )
)


def covered(rules: tuple[str, ...], *, private: bool) -> set[object]:
    """The requests that rules cover; those alone that may go to a private address, or all."""
    read = [rule for rule in rules_of(rules) if rule.private or not private]
    return {request for request in REQUESTS if any(rule.covers(*request) for rule in read)}


@given(st.lists(st.sampled_from(RULES), max_size=4), st.lists(st.sampled_from(RULES), max_size=4))
def test_what_two_lists_have_in_common_is_what_both_cover(ours: list[str], theirs: list[str]) -> None:
    both = common(ours, theirs)
    for private in (False, True):
        mine, other = covered(tuple(ours), private=private), covered(tuple(theirs), private=private)
        assert covered(both, private=private) == mine & other
        if is_narrower(ours, theirs):
            assert mine <= other
    assert is_narrower(both, ours) and is_narrower(both, theirs)
    assert is_narrower(ours, [*ours, *theirs]) and is_narrower([], ours)


def test_one_method_after_another_is_as_narrow_as_all_at_once() -> None:
    assert is_narrower(["GET,POST a.example.com"], ["GET a.example.com", "POST a.example.com/", "DELETE b.example.com"])
    assert not is_narrower(["GET,PUT a.example.com"], ["GET a.example.com", "POST a.example.com"])
