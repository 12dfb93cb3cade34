"""The Host and Origin headers that a server takes for its own."""

import pytest

from toolcell import UsageError
from toolcell.mcp.server.access import HostRules

LOCAL = HostRules("127.0.0.1", (), ("https://app.example.org",))
NAMED = HostRules("0.0.0.0", ("mcp.example.org", "gate.example.org:8443"), ())
HOSTILE = [
    "localhost:80@evil.example.org",
    "localhost:80.evil.example.org",
    "localhost:8000:8000",
    "localhost:",
    "localhost:0",
    "localhost:080",
    "localhost:65536",
    "localhost:99999999999999999999",
    "localhost:-1",
    "localhost:+80",
    "localhost:8 0",
    "localhost:80/",
    "localhost:80#x",
    "localhost:80?x",
    "localhost:80\\x",
    "localhost:٣",
    "localhost.evil.example.org",
    "localhost@evil.example.org",
    "user@localhost",
    "user:pass@localhost:80",
    "localhost, evil.example.org",
    "localhost\n",
    " localhost",
    "localhost.",
    "http://localhost",
    "[::1",
    "::1",
    "[::1]:80@evil.example.org",
    "[::1]evil.example.org",
    "[::1%lo]",
    "127.0.0.1.evil.example.org",
    "127.0.0.1:80@evil.example.org",
    "127.1",
    "2130706433",
    "evil.example.org#localhost",
    "",
]


@pytest.mark.parametrize("host", HOSTILE)
def test_a_host_that_only_looks_like_the_server_is_refused(host: str) -> None:
    assert not LOCAL.accepts_host(host)
    assert not NAMED.accepts_host(host.replace("localhost", "mcp.example.org"))


@pytest.mark.parametrize("host", [each for each in HOSTILE if "://" not in each])
def test_an_origin_that_only_looks_like_a_page_of_the_server_is_refused(host: str) -> None:
    assert not LOCAL.accepts_origin(f"http://{host}")
    assert not LOCAL.accepts_origin(f"https://{host}".replace("localhost", "app.example.org"))


def test_the_names_of_a_server_are_accepted_with_any_port_unless_one_is_named() -> None:
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]:65535", "[::1]"):
        assert LOCAL.accepts_host(host) and LOCAL.accepts_origin(f"http://{host}")
    for host in ("mcp.example.org", "MCP.example.org:1", "gate.example.org:8443"):
        assert NAMED.accepts_host(host)
    assert not NAMED.accepts_host(None)
    for host in ("gate.example.org", "gate.example.org:84430", "localhost", "0.0.0.0"):
        assert not NAMED.accepts_host(host)
    assert HostRules("192.0.2.7", (), ()).accepts_host("192.0.2.7:80")
    assert HostRules("127.0.0.2", (), ()).accepts_host("127.0.0.2:80")


def test_an_origin_is_its_scheme_host_and_port() -> None:
    assert LOCAL.accepts_origin("https://app.example.org") and LOCAL.accepts_origin("https://app.example.org:443")
    for origin in ("null", "", "http://app.example.org", "https://app.example.org:444", "https://localhost"):
        assert not LOCAL.accepts_origin(origin)
    assert not NAMED.accepts_origin("http://localhost")


def test_a_rule_that_is_no_host_or_no_origin_is_a_mistake_of_the_operator() -> None:
    with pytest.raises(UsageError, match="is not a host"):
        HostRules("127.0.0.1", ("https://mcp.example.org",), ())
    with pytest.raises(UsageError, match="is not an origin"):
        HostRules("127.0.0.1", (), ("app.example.org",))
    with pytest.raises(UsageError, match="--allow-host"):
        HostRules("::", (), ())
