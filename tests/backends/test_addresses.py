"""What may be fetched: URLs and addresses, decided without a socket."""

from ipaddress import ip_address

import pytest

from toolcell.backends.addresses import checked_addresses, is_public, parse_pairs, parse_url
from toolcell.backends.protocols import Refused

HOSTILE_URLS = [
    # not http
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://example.com/_GET",
    "javascript:alert(1)",
    "data:text/plain,x",
    "//example.com/",
    "example.com",
    "",
    "http:",
    "http://",
    "http:///path",
    "http:example.com",
    "https://?q",
    # two hosts in one
    "http://user@example.com/",
    "http://user:pw@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1\\@example.com/",
    "http://example.com\\.evil.example.org/",
    "http://@example.com/",
    "http://example.com%40evil.example.org/",
    "http://example.com%2f@evil.example.org/",
    # smuggling
    "http://example.com/\r\nHost: evil",
    "http://example.com\r\n/",
    "http://exam\tple.com/",
    "http://example.com/a b",
    " http://example.com/",
    "http://example.com/ ",
    "http://example.com/\x00",
    "http://example.com/\x7f",
    "http://example.com/\x85",
    "http://example.com/\u2028",
    "http://example.com/\u3000",
    "http://example.com/\ud800",
    "http://exam\u2100ple.com/",  # NFKC makes a slash of it
    # IPv4 in other clothes
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://0x/",
    "http://127.0.0.0x1/",
    "http://1.2.3.4.5/",
    "http://256.256.256.256/",
    "http://127.0.0.1%00/",
    "http://４２９４９６７２９５/",
    # IPv6 oddities
    "http://[::1%25lo]/",
    "http://[fe80::1%25eth0]/",
    "http://[::1]evil.example.org/",
    "http://evil.example.org[::1]/",
    "http://[v1.a]/",
    "http://[::1/",
    "http://::1/",
    "http://[127.0.0.1]/",
    # names that are not names
    "http://./",
    "http://example..com/",
    "http://.example.com/",
    "http://example.com../",
    "http://-example.com/",
    "http://exa*mple.com/",
    f"http://{'a' * 64}.com/",
    f"http://{'a.' * 130}com/",
    "http://fa\u00df.de/",
    "http://a\u200db.com/",
    "http://\U000e0001.com/",
    # ports
    "http://example.com:22/",
    "http://example.com:0/",
    "http://example.com:8080/",
    "http://example.com:65536/",
    "http://example.com:-1/",
    "http://example.com:٨٠/",
    "http://example.com:80:80/",
    "http://example.com/" + "a" * 9000,
]


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_a_hostile_url_is_refused_before_any_lookup(url: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_url(url)
    message = str(caught.value)
    assert message.endswith((".", "]")) and len(message) < 300 and message.isprintable()


@pytest.mark.parametrize(
    ("url", "normal", "host", "port"),
    [
        ("http://example.com", "http://example.com/", "example.com", 80),
        ("HTTPS://EXAMPLE.com:443/A?b=c#d", "https://example.com/A?b=c", "example.com", 443),
        ("https://example.com:80/", "https://example.com:80/", "example.com", 80),
        ("http://example.com./", "http://example.com/", "example.com", 80),
        ("http://example.com:/", "http://example.com/", "example.com", 80),
        (
            "http://bücher.example.com/ä?ö=ü",
            "http://xn--bcher-kva.example.com/%C3%A4?%C3%B6=%C3%BC",
            "xn--bcher-kva.example.com",
            80,
        ),
        ("http://例え。テスト/", "http://xn--r8jz45g.xn--zckzah/", "xn--r8jz45g.xn--zckzah", 80),
        ("http://ｅｘａｍｐｌｅ.com/", "http://example.com/", "example.com", 80),
        ("http://a_b.example.com/", "http://a_b.example.com/", "a_b.example.com", 80),
        ("http://1e3.example.com/%zz?%00", "http://1e3.example.com/%zz?%00", "1e3.example.com", 80),
        ("http://127.0.0.1./", "http://127.0.0.1/", "127.0.0.1", 80),
        ("http://１２７。0.0.1/", "http://127.0.0.1/", "127.0.0.1", 80),
        ("http://[0:0::1]/x", "http://[::1]/x", "::1", 80),
        ("http://example.com/%0d%0aX:1", "http://example.com/%0d%0aX:1", "example.com", 80),
    ],
)
def test_a_url_is_normalised_once(url: str, normal: str, host: str, port: int) -> None:
    target = parse_url(url)
    assert (target.url, target.host, target.port) == (normal, host, port)
    assert parse_url(target.url) == target


def test_an_address_in_the_url_is_known_as_one() -> None:
    for url in ("http://127.0.0.1/", "http://127.0.0.1./", "http://１２７。0.0.1/"):
        assert parse_url(url).literal == ip_address("127.0.0.1")
    assert parse_url("http://[::ffff:127.0.0.1]/").literal == ip_address("::ffff:127.0.0.1")
    assert parse_url("http://localhost/").literal is None


NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254 169.254.170.2
    172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.9 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1
    198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 168.63.129.16 :: ::1 ::127.0.0.1
    ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1
    64:ff9b::10.1.2.3 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8 64:ff9b:1::10.0.0.1 2002:808:808::1 2002:7f00:1::
    2002:0a00:1::1
    2002:a9fe:a9fe:: 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 2001:10::1 2001:20::1 3fff::1 5f00::1
    100::1 fc00::1 fd00:ec2::254 fd12:3456::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1 2606:4700::5efe:10.0.0.1
    2606:4700::200:5efe:127.0.0.1 4000::1 2606:4700::1%1
"""
PUBLIC = """
    1.1.1.1 8.8.8.8 93.184.216.34 100.63.255.255 100.128.0.1 172.15.255.255 172.32.0.1 192.0.1.1 223.255.255.255
    2606:4700:4700::1111 2001:4860:4860::8888 ::ffff:8.8.8.8 64:ff9b::8.8.8.8
"""


@pytest.mark.parametrize("address", NOT_PUBLIC.split())
def test_an_address_that_is_not_on_the_public_internet_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC.split())
def test_an_address_on_the_public_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    target = parse_url("http://mixed.example.org/")
    assert checked_addresses(target, ["1.1.1.1", "2606:4700:4700::1111", "1.1.1.1"], ()) == [
        ip_address("1.1.1.1"),
        ip_address("2606:4700:4700::1111"),
    ]
    with pytest.raises(Refused, match=r"mixed\.example\.org is not on the public web") as caught:
        checked_addresses(target, ["1.1.1.1", "10.9.8.7"], ())
    assert "10.9.8.7" not in str(caught.value)  # what a name means inside is not for the model to learn


@pytest.mark.parametrize("answers", [[], ["nonsense"], ["1.1.1.1", "1.1.1.1 "]])
def test_an_answer_that_is_no_address_refuses_the_name(answers: list[str]) -> None:
    with pytest.raises(Refused, match="no usable address"):
        checked_addresses(parse_url("http://odd.example.org/"), answers, ())


def test_an_allowed_pair_is_that_host_on_that_port_and_nothing_else() -> None:
    allowed = parse_pairs(["127.0.0.1:8080", "[::1]:9000", "Wiki.Corp.:80"])
    assert allowed == {("127.0.0.1", 8080), ("::1", 9000), ("wiki.corp", 80)}
    for url in ("http://127.0.0.1:8080/", "http://[::1]:9000/"):
        target = parse_url(url, allowed=allowed)
        assert checked_addresses(target, [target.host], allowed) == [target.literal]
    for url in ("http://127.0.0.1:9000/", "http://other.example.org:8080/", "http://127.0.0.2:8080/"):
        with pytest.raises(Refused, match="is not fetched"):
            parse_url(url, allowed=allowed)
    with pytest.raises(Refused, match="not on the public web"):
        checked_addresses(parse_url("http://127.0.0.1/", allowed=allowed), ["127.0.0.1"], allowed)
    assert checked_addresses(parse_url("http://wiki.corp/"), ["10.0.0.1"], allowed) == [ip_address("10.0.0.1")]


@pytest.mark.parametrize(
    "pair", ["127.0.0.1", "127.0.0.1:", ":80", "10.0.0.0/8:80", "http://a:80", "a:0", "a:65536", "u@a:80", "::1:80", ""]
)
def test_a_pair_that_is_not_host_and_port_is_misuse(pair: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_pairs([pair])


def test_a_pair_may_have_any_port_that_there_is() -> None:
    assert parse_pairs(["a.example.org:1", "a.example.org:65535"]) == {("a.example.org", 1), ("a.example.org", 65535)}
    for port in ("0", "65536", "99999"):
        with pytest.raises(ValueError):
            parse_pairs([f"a.example.org:{port}"])
