"""What a tool may ask for and say: decided without a socket."""

import pytest

from toolcell.backends.addresses import parse_url
from toolcell.backends.http.checks import answer_headers, checked_headers, checked_method, rule_for
from toolcell.backends.protocols import Refused
from toolcell.rules.hosts import rules_of

RULES = rules_of(["GET,POST https://api.example.com/v1", "GET *.example.org", "GET http://127.0.0.1:8080"])


def test_a_covered_request_has_its_rule() -> None:
    for url in (
        "https://api.example.com/v1",
        "https://API.example.com.:443/v1/users?limit=1&x=../..#part",
        "https://api.example.com/v1/a%2Fb/%20;v=1/...",
    ):
        assert rule_for(RULES, "GET", parse_url(url, any_port=True)) == RULES[0]
    assert rule_for(RULES, "GET", parse_url("http://127.0.0.1:8080/x", any_port=True)).private
    # Without a path in the rule there is nothing to get out of.
    assert rule_for(RULES, "GET", parse_url("https://a.example.org/a/../b/%2e%2e/c")) == RULES[1]


@pytest.mark.parametrize(
    "url",
    [
        # another origin that looks like it
        "http://api.example.com/v1", "https://api.example.com:8443/v1", "https://api.example.com.example.com/v1",
        "https://evilapi.example.com/v1", "https://api-example.com/v1", "https://example.org/", "https://aexample.org/",
        "https://xn--pi-7ia.example.com/v1", "https://аpi.example.com/v1", "https://api.example.com.example.com/v1",
        "http://127.0.0.1/", "http://127.0.0.1:8081/", "https://127.0.0.1:8080/", "http://localhost:8080/",
        "http://[::1]:8080/", "http://[::ffff:127.0.0.1]:8080/",
        # out of the path
        "https://api.example.com/", "https://api.example.com/v10", "https://api.example.com/V1",
        "https://api.example.com//v1", "https://api.example.com/%76%31", "https://api.example.com/v1/../admin",
        "https://api.example.com/v1/..", "https://api.example.com/v1/%2e%2e/admin", "https://api.example.com/v1/.%2E/a",
        "https://api.example.com/v1/%252e%252e/admin", "https://api.example.com/v1/..%2fadmin",
        "https://api.example.com/v1/..%5cadmin", "https://api.example.com/v1/..;/admin",
        "https://api.example.com/v1/..;x=1/admin", "https://api.example.com/v1/%c0%ae%c0%ae/admin",
        "https://api.example.com/v1/．．/admin", "https://api.example.com/v1/‥/admin", "https://api.example.com/v1/a%00",
        "https://api.example.com/v1%2f..%2fadmin", "https://api.example.com/v1/..%3f",
        "https://api.example.com/v1/..%23a", "https://api.example.com/v1/..%253fa", "https://api.example.com/v1/..%20/admin",
        "https://api.example.com/v1/.%0a./admin", "https://api.example.com/v1/%C2%A0../admin",
        "https://api.example.com/v1/..%09", "https://api.example.com/v1/．%2e%3Fa",
        "https://api.example.com/v1/％2e％2e/admin",
    ],
)  # fmt: skip
def test_look_alikes_and_paths_in_disguise_fall_under_no_rule(url: str) -> None:
    with pytest.raises(Refused, match=r"not among the requests .*Profile\(http=\[\.\.\., 'GET http"):
        rule_for(RULES, "GET", parse_url(url, any_port=True))


def test_a_path_of_many_layers_is_refused_without_peeling_them_all() -> None:
    with pytest.raises(Refused):
        rule_for(RULES, "GET", parse_url("https://api.example.com/v1/%" + "25" * 4000 + "41"))


def test_a_method_that_no_rule_has_falls_under_none() -> None:
    with pytest.raises(Refused, match=r"^DELETE https://api\.example\.com/v1 is not among"):
        rule_for(RULES, "DELETE", parse_url("https://api.example.com/v1"))


def test_a_rule_that_needs_no_private_address_comes_first() -> None:
    rules = rules_of(["* a.example.com private", "GET a.example.com"])
    assert rule_for(rules, "GET", parse_url("https://a.example.com/")) == rules[1]
    assert rule_for(rules, "POST", parse_url("https://a.example.com/")).private


def test_methods_are_those_of_a_rule() -> None:
    assert checked_method("patch") == "PATCH"
    for method in ("TRACE", "CONNECT", "PROPFIND", "", "GET ", "GET\r\nX: y", "ﬁnd", "GET /", "*"):
        with pytest.raises(Refused, match="is not supported"):
            checked_method(method)


def test_headers_of_the_request_itself_are_a_tools_to_set() -> None:
    said = {"Accept": "a/b", "Content-Type": "application/json; x=\ty", "X-Api-Version": "2", "If-None-Match": '"e"'}
    assert checked_headers(said) == {name.lower(): value for name, value in said.items()}


@pytest.mark.parametrize(
    "name",
    [
        "Host", "HOST", "Authorization", "authorization", "Cookie", "Cookie2", "Content-Length", "Transfer-Encoding",
        "Connection", "Keep-Alive", "Upgrade", "TE", "Trailer", "Expect", "HTTP2-Settings", "Proxy-Authorization",
        "Proxy-Connection", "proxy-anything", "Accept-Encoding", "Forwarded", "Via", "X-Forwarded-For",
        "X-Forwarded-Host", "X-Real-IP", "CF-Connecting-IP", "CF-Connecting-IPv6", "X-Cluster-Client-IP", "Remote-User",
        "True-Client-IP", "X-Client-IP", "X-HTTP-Method-Override", "X-Method-Override", "X-Original-URL",
        "X-Rewrite-URL", "Content_Length", "Transfer_Encoding", "X_Forwarded_For", "Proxy_Authorization",
    ],
)  # fmt: skip
def test_what_is_the_supervisors_is_not_a_tools_to_set(name: str) -> None:
    with pytest.raises(Refused, match="is not a tool's to set"):
        checked_headers({name: "x"})


@pytest.mark.parametrize("name", ["", " X", "X ", "X:", "X Y", "X\r\nY", "X\0", "Hôst", "X\t", "Ｈost", "a" * 129])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="is not a header name"):
        checked_headers({name: "x"})


@pytest.mark.parametrize("value", ["a\r\nHost: evil", "a\nb", "a\rb", "a\0b", "\x7f", "\x0b", "ä", "a\u2028b", "\x85"])
def test_a_value_with_a_line_end_or_a_control_character_is_refused(value: str) -> None:
    with pytest.raises(Refused, match="has a line end, a control or a non-ASCII character"):
        checked_headers({"X": value})


def test_headers_are_few_and_small_and_there_once() -> None:
    with pytest.raises(Refused, match="is there twice"):
        checked_headers({"X-A": "1", "x-a": "2"})
    for headers in ({f"x-{n}": "" for n in range(65)}, {"x": "y" * 20_000}):
        with pytest.raises(Refused, match="too many or too long"):
            checked_headers(headers)


def test_an_answer_has_neither_cookies_nor_what_is_the_connections() -> None:
    came = [
        ("Content-Type", "a/b"), ("Set-Cookie", "session=1"), ("SET-COOKIE", "b=2"), ("Connection", "close"),
        ("Transfer-Encoding", "chunked"), ("Link", "<a>"), ("link", "<b>"), ("Content-Length", "5"), ("ETag", '"e"'),
    ]  # fmt: skip
    kept = {"content-type": "a/b", "link": "<a>, <b>", "etag": '"e"'}
    assert answer_headers(came) == kept | {"content-length": "5"}
    assert answer_headers([*came, ("Content-Encoding", "gzip")]) == kept, "the body is decoded"
