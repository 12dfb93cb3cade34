"""The policies as values: what an allow-list means, what is refused when it is written, and which is narrower."""

import json
from typing import Any

import pytest

from toolcell.backends.addresses import parse_url
from toolcell_sandbox import CellProfile, HostNetwork, NoNetwork, ProxyNetwork
from toolcell_sandbox.network import Network, common, covered, from_wire, is_narrower, to_wire


def allows(entry: str, host: str, port: int = 443) -> bool:
    return covered(ProxyNetwork(allow=[entry]).patterns(), host, port)


def test_no_network_is_the_default_and_needs_nothing_to_be_said() -> None:
    assert CellProfile().network == CellProfile.for_kind("main").network == NoNetwork()


def test_a_host_means_that_host_on_80_and_443() -> None:
    assert allows("packages.example.org", "packages.example.org", 80)
    assert allows("packages.example.org", "packages.example.org", 443)
    for host, port in (
        ("packages.example.org", 8080),
        ("packages.example.org", 22),
        ("evil-packages.example.org", 443),
        ("packages.example.org.evil.example.org", 443),
        ("a.packages.example.org", 443),
        ("example.org", 443),
    ):
        assert not allows("packages.example.org", host, port), (host, port)


def test_a_star_means_every_name_below_and_not_the_name_itself() -> None:
    for host in ("a.example.com", "a.b.example.com"):
        assert allows("*.example.com:443", host)
    for host, port in (("example.com", 443), ("badexample.com", 443), ("a.example.com", 80), ("example.com.x", 443)):
        assert not allows("*.example.com:443", host, port), host


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        ("Example.ORG.", "example.org"),
        ("bücher.example.com", "xn--bcher-kva.example.com"),
        ("*.BÜCHER.example.com", "www.xn--bcher-kva.example.com"),
        ("[2001:DB8:0::1]:443", "2001:db8::1"),
        ("192.0.2.1", "192.0.2.1"),
    ],
)
def test_entries_are_read_as_the_guard_reads_urls(entry: str, host: str) -> None:
    assert allows(entry, host)
    if not entry.startswith("*"):
        assert parse_url(f"https://{entry}/").host == host


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("https://example.org", "is a URL"),
        ("example.org/path", "characters"),
        ("user@example.org", "user name"),
        ("*", "no host name"),
        ("*.com", "top-level domain"),
        ("*.*.example.org", "no host name"),
        ("a*.example.org", "no host name"),
        ("*.0.0.1", "full address"),
        ("example.org:0", "65535"),
        ("example.org:65536", "65535"),
        ("example.org:http", "no number"),
        ("example.org:443:80", "no number"),
        ("example..org", "no host name"),
        ("exa mple.org", "characters"),
        ("example.org\0.evil.example.org", "characters"),
        ("127.1", "full address"),
        ("0x7f.1", "full address"),
        ("0177.0.0.1", "full address"),
        ("[::1", "no host"),
        ("[fe80::1%eth0]", "characters"),
        ("straße.example.com", "two names"),
        ("", "no host name"),
        (".example.org", "no host name"),
        (b"example.org", "not a string"),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused_with_an_example(entry: Any, why: str) -> None:
    with pytest.raises(ValueError, match=rf"ProxyNetwork\.allow has an entry that .*({why}).*Write it like"):
        ProxyNetwork(allow=[entry])


@pytest.mark.parametrize("entry", ["*.internal.example.org:80", "127.0.0.1", "10.0.0.0/8"])
def test_an_exception_to_the_guard_is_one_host_and_one_port(entry: str) -> None:
    with pytest.raises(ValueError, match=r"ProxyNetwork\.allow_private"):
        ProxyNetwork(allow_private=[entry])


@pytest.mark.parametrize(
    "change", [{"allow": "example.org"}, {"max_bytes": 0}, {"idle_s": True}, {"max_connections": 1.5}]
)
def test_other_values_are_checked_too(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"ProxyNetwork.{next(iter(change))}"):
        ProxyNetwork(**change)


def test_a_policy_that_is_none_of_the_three_is_refused() -> None:
    wrong: Any = HostNetwork
    with pytest.raises(ValueError, match=r"HostNetwork\(\)"):
        CellProfile(network=wrong)


PROXIES = [
    ProxyNetwork(allow=["a.example.com:443"], max_bytes=10),
    ProxyNetwork(allow=["a.example.com"]),
    ProxyNetwork(allow=["*.example.com"]),
    ProxyNetwork(allow=["*.example.com", "example.org"]),
    ProxyNetwork(allow=["*.example.com", "example.org"], allow_private=["10.0.0.1:443"]),
]


def test_each_policy_is_narrower_than_the_next() -> None:
    row: list[Network] = [NoNetwork(), ProxyNetwork(max_bytes=10), *PROXIES, HostNetwork()]
    for at, narrow in enumerate(row):
        assert is_narrower(narrow, narrow)
        for wide in row[at + 1 :]:
            assert is_narrower(narrow, wide) and not is_narrower(wide, narrow), (narrow, wide)


def test_two_policies_have_in_common_what_both_reach() -> None:
    row: list[Network] = [NoNetwork(), ProxyNetwork(max_bytes=10), *PROXIES, HostNetwork()]
    for at, narrow in enumerate(row):
        for wide in row[at:]:
            assert common(narrow, wide) == common(wide, narrow) == narrow
    one = ProxyNetwork(
        allow=["*.example.com", "b.example.org:8080"], allow_private=["10.0.0.1:443", "a.example.org:80"], max_bytes=5
    )
    two = ProxyNetwork(
        allow=["a.example.com:443", "10.0.0.1"], allow_private=["a.example.org:80", "c.example.org:80"], idle_s=1
    )
    both = common(one, two)
    assert both == ProxyNetwork(
        allow=["10.0.0.1:443", "a.example.org:80", "a.example.com:443"],
        allow_private=["a.example.org:80"],
        max_bytes=5,
        idle_s=1,
    )
    assert is_narrower(both, one) and is_narrower(both, two)


def test_a_profile_is_narrowed_by_its_network_and_never_widened() -> None:
    profile = CellProfile.for_kind("main").replace(network=PROXIES[3])
    assert profile.narrow(network=PROXIES[0]).network == PROXIES[0]
    with pytest.raises(ValueError, match="network"):
        profile.narrow(network=HostNetwork())
    assert profile.narrow(grants={"read"}).reach == NoNetwork()
    assert not profile.is_narrower_than(CellProfile.for_kind("main"))


@pytest.mark.parametrize("policy", [NoNetwork(), HostNetwork(), *PROXIES])
def test_a_policy_crosses_the_wire_unchanged(policy: Network) -> None:
    assert from_wire(json.loads(json.dumps(to_wire(policy)))) == policy
    profile = CellProfile.for_kind("main").replace(network=policy)
    assert CellProfile.from_wire(json.loads(json.dumps(profile.to_wire()))) == profile
    assert len({profile, CellProfile.for_kind("main").replace(network=policy)}) == 1


@pytest.mark.parametrize(
    "wire", [{}, {"kind": "open"}, {"kind": "none", "allow": []}, {"kind": "proxy", "deny": []}, 7]
)
def test_what_is_no_policy_does_not_come_off_the_wire(wire: Any) -> None:
    with pytest.raises(ValueError, match="network"):
        from_wire(wire)


def test_only_a_proxied_profile_that_grants_net_names_the_proxy_and_nothing_overrides_it() -> None:
    host = {"HTTPS_PROXY": "http://corporate.example.org", "no_proxy": "*"}
    proxied = CellProfile(network=PROXIES[0], pass_env=tuple(host), env={"ALL_PROXY": "http://elsewhere.example.org"})
    assert "HTTP_PROXY" not in proxied.environment({})
    environment = proxied.replace(grants=frozenset({"net"})).environment(host)
    found = {name: value for name, value in environment.items() if "proxy" in name.lower()}
    assert found.pop("NODE_USE_ENV_PROXY") == "1" and "NODE_USE_ENV_PROXY" not in proxied.environment(host)
    assert set(found.values()) == {"http://127.0.0.1:3128", ""} and len(found) == 8
    assert found["NO_PROXY"] == found["no_proxy"] == ""
