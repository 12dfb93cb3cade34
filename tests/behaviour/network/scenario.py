"""A proxied and a host network on another kind of machine, as a program: `python -I scenario.py WORKSPACE LOOP`.

It prints one JSON object. The servers are threads of this program. The tool is in this file, which is `__main__`.
"""

import functools
import http.server
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import anyio

from toolcell import (
    Capability,
    HostNetwork,
    Profile,
    ProxyNetwork,
    RecentJournal,
    SessionKind,
    Supervisor,
    base_tools,
    tool,
)


@tool(needs={Capability.NET})
def reach(port: int) -> dict[str, str]:
    """Connect to the host's loopback without the proxy, and make a datagram socket."""
    found: dict[str, str] = {}
    attempts: dict[str, Callable[[], None]] = {
        "connect": lambda: socket.create_connection(("127.0.0.1", port), 3).close(),
        "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = "worked"
        except OSError as error:
            found[name] = os.strerror(error.errno or 0)
    return found


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


async def main(port: int) -> dict[str, Any]:
    policy = ProxyNetwork(allow=["good.example.org"], allow_private=[f"packages.example.org:{port}"])
    profiles = {SessionKind.MAIN: Profile.for_kind("main").replace(network=policy)}
    on_the_host = Profile.for_kind("main").replace(network=HostNetwork())
    found: dict[str, Any] = {}
    async with Supervisor(
        [*base_tools(), reach], profiles=profiles, resolve=lambda host, port: ["127.0.0.1"]
    ) as supervisor:
        session = await supervisor.open_session("main", workspace=sys.argv[1])
        other = await supervisor.open_session("main", workspace=sys.argv[1], profile=on_the_host)
        for name, command in (
            ("curl", f"curl -sS http://packages.example.org:{port}/hello.txt"),
            ("tunnel", f"curl -sSp http://packages.example.org:{port}/hello.txt"),
            ("refused", "curl -sS https://evil.example.org/"),
            ("private", "curl -sS https://good.example.org/"),
        ):
            output = (await session.call("shell", {"command": command})).unwrap()
            found[name] = [output["exit_code"], output["stdout"]]
        found["proxied"] = (await session.call("reach", {"port": port})).unwrap()
        result = await other.call("reach", {"port": port})
        found["host"] = result.unwrap()
        found["network"] = result.sandbox.network
        found["identity"] = supervisor.status().identity
        assert isinstance(supervisor.journal, RecentJournal)
        records = supervisor.journal.of(kind="egress")
        found["records"] = [[record.data["host"], record.data["allowed"]] for record in records]
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "hello.txt"), "w") as file:
            file.write("hello there\n")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(json.dumps(anyio.run(main, server.server_address[1], backend=sys.argv[2])))
