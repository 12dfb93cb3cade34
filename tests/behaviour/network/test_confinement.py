"""A cell with a network policy can do nothing beside its proxy that the policy does not allow."""

from pathlib import Path

import pytest

from toolcell import HostNetwork

from .conftest import Listener, Proxied
from .tools import make_sockets, reach, without_net

NOT_SUPPORTED, NOT_PERMITTED = "Address family not supported by protocol", "Operation not permitted"


@pytest.mark.anyio
async def test_under_a_proxy_there_is_tcp_to_the_proxy_and_nothing_else(
    proxied: Proxied, listener: Listener, workspace: Path
) -> None:
    async with proxied([make_sockets, reach], allow=["good.example.org"]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        made = (await session.call("make_sockets")).unwrap()
        assert made.pop("tcp") == made.pop("tcp6") == "made"
        assert made.pop("bind") == made.pop("listen") == NOT_PERMITTED
        assert set(made.values()) == {NOT_SUPPORTED}
        places = [("127.0.0.1", listener.port), ("127.0.0.1", 1), ("::1", listener.port), ("192.0.2.1", 80)]
        assert set((await session.call("reach", {"places": places})).unwrap()) == {"Permission denied"}
        outside = [("192.0.2.1", 3128), ("169.254.169.254", 3128), ("2001:db8::1", 3128), ("::1", 3128)]
        unreachable = ["Network is unreachable"] * 3 + ["Connection refused"]
        assert (await session.call("reach", {"places": outside})).unwrap() == unreachable
        assert listener.accepted == 0


@pytest.mark.anyio
async def test_the_hosts_network_is_an_explicit_choice_that_each_result_repeats(
    proxied: Proxied, listener: Listener, workspace: Path
) -> None:
    async with proxied([make_sockets, reach, without_net], network=HostNetwork()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("reach", {"places": [("127.0.0.1", listener.port)]})
        assert result.unwrap() == ["welcome"]
        assert result.sandbox.network == "host" and not {"net_namespace", "landlock_net"} & set(result.sandbox.on)
        made = (await session.call("make_sockets")).unwrap()
        assert {name for name, said in made.items() if said in ("made", "done")} == {
            "tcp", "tcp6", "udp", "udp6", "bind", "listen",
        }  # fmt: skip
        without = await session.call("without_net")
        assert without.unwrap() == [NOT_SUPPORTED, []] and without.sandbox.network == "none"
