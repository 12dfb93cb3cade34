"""What a request to the proxy may reach, without a socket."""

import errno
import threading
from ipaddress import ip_address

import anyio
import pytest

from toolcell import ProxyNetwork
from toolcell.backends.egress.decision import EgressRules, target_of
from toolcell.backends.egress.head import RequestHead
from toolcell.backends.egress.net import Lookups, connect
from toolcell.backends.protocols import Refused


def tunnel(target: str) -> RequestHead:
    return RequestHead("CONNECT", target, (), 0)


@pytest.mark.parametrize(
    "target",
    [
        "example.org/x:80",
        "example.org?x:80",
        "example.org#x:80",
        "example.org:80/x",
        "example.org:443/x:80",
        "example.org",
        "example.org:",
        "example.org:http",
        "example.org:123456",
        "user@example.org:443",
        "example.org:443\n",
        ":443",
        "",
    ],
)
def test_connect_takes_a_host_and_a_port_and_nothing_else(target: str) -> None:
    with pytest.raises(Refused):
        target_of(tunnel(target))


def test_connect_names_its_target() -> None:
    assert (target_of(tunnel("example.org:8443")).host, target_of(tunnel("example.org:8443")).port) == (
        "example.org",
        8443,
    )
    assert target_of(tunnel("[2001:db8::1]:443")).host == "2001:db8::1"


@pytest.mark.parametrize("url", ["/x", "https://example.org/", "ftp://example.org/", "*", "http:example.org"])
def test_any_other_request_has_a_whole_url(url: str) -> None:
    with pytest.raises(Refused):
        target_of(RequestHead("GET", url, (), 0))


def test_what_is_not_covered_is_refused_before_a_name_is_looked_up() -> None:
    rules = EgressRules(ProxyNetwork(allow=["example.org:443"]))
    rules.check(target_of(tunnel("example.org:443")))
    for target in ("example.org:80", "evil.example.org:443"):
        with pytest.raises(Refused, match="allow-list"):
            rules.check(target_of(tunnel(target)))


def test_the_refusal_names_the_entry_that_would_allow_it() -> None:
    rules = EgressRules(ProxyNetwork(allow=["example.org:443"]))
    for target in ("example.com:443", "[2001:db8::1]:443"):
        with pytest.raises(Refused) as caught:
            rules.check(target_of(tunnel(target)))
        assert f"ProxyNetwork(allow=[..., {target!r}])" in str(caught.value)
        EgressRules(ProxyNetwork(allow=[target])).check(target_of(tunnel(target)))


def test_one_address_that_is_not_public_refuses_them_all_but_for_an_exception() -> None:
    target = target_of(tunnel("example.org:443"))
    strict = EgressRules(ProxyNetwork(allow=["example.org:443"]))
    assert [str(each) for each in strict.addresses(target, ["1.1.1.1"])] == ["1.1.1.1"]
    with pytest.raises(Refused, match="not public"):
        strict.addresses(target, ["1.1.1.1", "10.0.0.1"])
    lenient = EgressRules(ProxyNetwork(allow=["example.org:443"], allow_private=["example.org:443"]))
    assert [str(each) for each in lenient.addresses(target, ["10.0.0.1"])] == ["10.0.0.1"]


@pytest.mark.anyio
async def test_a_lookup_for_which_there_is_no_room_fails_at_once_and_holds_up_nobody() -> None:
    let_go = threading.Event()

    def slow(host: str, port: int) -> list[str]:
        let_go.wait(3600)
        return ["192.0.2.1"]

    lookups = Lookups(slow, most=1)
    async with anyio.create_task_group() as group:
        group.start_soon(lookups.addresses, "slow.example.org", 443)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(OSError) as caught:
            await lookups.addresses("other.example.org", 443)
        let_go.set()
    assert caught.value.errno == errno.EAGAIN
    assert await lookups.addresses("other.example.org", 443) == ["192.0.2.1"], "there is room again"


@pytest.mark.anyio
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_an_address_is_connected_to_by_its_own_family(address: str) -> None:
    """Port 1 is closed. A machine without IPv6 says so in another word; the wrong family would be a `gaierror`."""
    with pytest.raises(OSError) as caught:
        await connect([ip_address(address)], 1)
    assert caught.value.errno in {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH}
