"""A network policy in the kernel's hands: two layers hold each of them, and a cell in which one is off never starts."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bpf_evaluator import evaluate

from toolcell_sandbox import (
    CellProfile,
    HostNetwork,
    Identity,
    Mechanism,
    NoNetwork,
    ProxyNetwork,
    SandboxError,
    SandboxReport,
)
from toolcell_sandbox.kernel import descriptors
from toolcell_sandbox.kernel.syscalls import AUDIT_ARCH, TABLES
from toolcell_sandbox.mechanisms.bpf import ALLOW, refuse
from toolcell_sandbox.mechanisms.seccomp import CHECKS, REFUSED, program
from toolcell_sandbox.network import PROXY_PORT
from toolcell_sandbox.spawn import prepare

PROXIED = CellProfile.for_kind("main").replace(network=ProxyNetwork(allow=["good.example.org"]))
HOST = CellProfile.for_kind("main").replace(network=HostNetwork())


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A TCP server on the host's loopback; the kernel answers for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


CONNECTIONS = """
import errno, json, os, socket
def error_of(place):
    with socket.socket() as stream:
        stream.settimeout(60)
        return errno.errorcode.get(stream.connect_ex(tuple(place)), "OK")
print(json.dumps([[error_of(place) for place in arguments], entered.report.get("net_namespace").detail,
                  entered.report.get("net_namespace").state]))
"""
AWAIT_THE_CLOSE = """
import time  # the cell's maker closes the socket that is for a proxy while the cell runs already
for _ in range(1200):
    if error_of(("127.0.0.1", 3128)) != "OK":
        break
    time.sleep(0.05)
"""


def test_the_namespace_alone_keeps_a_proxied_cell_in(any_cell: Any, listener: socket.socket) -> None:
    """Without Landlock, and without any proxy: what the host's loopback has is not there, and no way leads out."""
    places = [("127.0.0.1", listener.getsockname()[1]), ("127.0.0.1", 3128), ("192.0.2.1", 80), ("192.0.2.1", 3128)]
    missing = ("landlock", "landlock_net", "landlock_scope")
    code = CONNECTIONS.replace("print(", AWAIT_THE_CLOSE + "print(", 1)
    (errors, detail, state) = any_cell(code, profile=PROXIED, arguments=places, missing=missing).value
    assert errors == ["ECONNREFUSED", "ECONNREFUSED", "ENETUNREACH", "ENETUNREACH"]
    assert "proxy" in detail and state == "on"


def test_the_hosts_network_is_in_the_cells_own_report(any_cell: Any, listener: socket.socket) -> None:
    (errors, detail, state) = any_cell(
        CONNECTIONS, profile=HOST, arguments=[("127.0.0.1", listener.getsockname()[1])]
    ).value
    assert errors == ["OK"] and "HostNetwork()" in detail and state == "substituted"


def test_names_can_be_looked_up_on_the_hosts_network_alone(any_cell: Any) -> None:
    code = """
import json, os, socket
names = [name for name in ("resolv.conf", "hosts") if os.path.exists("/etc/" + name)]
try:
    print(json.dumps([names, socket.getaddrinfo("localhost", 80, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]]))
except OSError as error:
    print(json.dumps([names, "not found"]))
"""
    there = [name for name in ("resolv.conf", "hosts") if Path("/etc", name).exists()]
    assert any_cell(code, profile=HOST).value == [there, "127.0.0.1"]
    assert any_cell(code, profile=PROXIED).value[0] == []
    assert any_cell(code).value == [[], "not found"]


def test_a_proxied_cell_has_connections_with_small_buffers(any_cell: Any) -> None:
    """Its namespace has limits of its own for TCP, of which the first figures are seen here."""
    code = """
import json, socket
with socket.socket() as stream:
    print(json.dumps([stream.getsockopt(socket.SOL_SOCKET, way) for way in (socket.SO_SNDBUF, socket.SO_RCVBUF)]))
"""
    assert any_cell(code, profile=PROXIED).value == [65_536, 65_536]


@pytest.mark.parametrize("profile", [PROXIED, HOST], ids=["proxied", "host"])
def test_without_the_grant_a_policy_counts_for_nothing(any_cell: Any, profile: CellProfile) -> None:
    code = "import json, socket\ntry: socket.socket()\nexcept OSError as error: print(json.dumps(error.errno))"
    without = profile.replace(grants=profile.grants - {"net"})
    assert any_cell(code, profile=without).value == errno.EAFNOSUPPORT


@pytest.mark.parametrize(
    ("sabotage", "what"),
    [
        ("module.namespaces.unshare = lambda names, real=module.namespaces.unshare: real(set(names) - "
         "{'net_namespace'})\nmodule.namespaces.listen = lambda *_: -1", "connection to the outside"),
        ("module.landlock.restrict = lambda rules, version, real=module.landlock.restrict, **rest: "
         "real(rules, version, connect=None)", "connection to another port"),
        ("import toolcell_sandbox.spawn\nspawning = sys.modules['toolcell_sandbox.spawn']\n"
         "spawning._filter = lambda profile: spawning.seccomp.program(allow_exec=True, reach='host')", "datagram"),
    ],
)  # fmt: skip
def test_a_layer_that_is_off_is_noticed_before_any_tool_runs(cell: Any, sabotage: str, what: str) -> None:
    before = f"import sys, toolcell_sandbox.enter\nmodule = sys.modules['toolcell_sandbox.enter']\n{sabotage}"
    result = cell("print('ran')", profile=PROXIED, before=before)
    assert "ran" not in result.out and result.error["step"] == "selftest", result.error
    assert what in str(result.error["what"])


def test_a_proxied_network_is_refused_where_there_is_no_namespace_to_put_it_in(cell: Any) -> None:
    result = cell("print('ran')", profile=PROXIED, missing=("net_namespace",))
    assert result.error["mechanism"] == "net_namespace" and "ran" not in result.out


def test_a_proxied_cell_cannot_connect_by_sending(cell: Any) -> None:
    code = """
    import errno, json, socket
    from toolcell_sandbox.network import PROXY_HOST
    answers = []
    for flags in (0x20000000, 0x20004040):
        with socket.socket() as stream:
            stream.setblocking(False)
            try:
                stream.sendto(b"x", flags, (PROXY_HOST, 1))
                answers.append("ok")
            except OSError as error:
                answers.append(errno.errorcode[error.errno])
            answers.append(errno.errorcode[stream.connect_ex((PROXY_HOST, 1))])
    print(json.dumps(answers))
    """
    assert cell(code, profile=PROXIED).value == ["ENOTSUP", "EACCES"] * 2


def test_the_listening_socket_stays_outside(cell: Any) -> None:
    code = "import json, os; print(json.dumps(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1]))"
    assert cell(code, profile=PROXIED).value == [0, 1, 2]


@pytest.mark.parametrize("machine", sorted(TABLES))
@pytest.mark.parametrize("high", [0, 1 << 32])
def test_of_all_sockets_the_filter_lets_those_through_that_the_policy_is_about(machine: str, high: int) -> None:
    def answers(name: str, *arguments: int) -> list[bool]:
        found: list[bool] = []
        for kind in ("none", "proxy", "host"):
            filter_bytes = program(machine, allow_exec=True, reach=kind)
            values = [value | high for value in arguments]
            answer = evaluate(filter_bytes, TABLES[machine][name], AUDIT_ARCH[machine], values)
            assert answer in (ALLOW, refuse(errno.EPERM), refuse(errno.EAFNOSUPPORT))
            found.append(answer == ALLOW)
        return found

    for flags in (0, 0o4000, 0o2000000, 0o2004000):
        for family in range(64):
            inet = family in (2, 10)
            assert answers("socket", family, 1 | flags, 0) == [False, inet, inet]
            assert answers("socket", family, 2 | flags, 0) == [False, False, inet]
            for kind in (0, 3, 4, 5, 6, 10, 15, 17, 0x101, 1 | 0o40):
                assert answers("socket", family, kind | flags, 0) == [False] * 3
        for protocol in range(300):
            assert answers("socket", 2, 1 | flags, protocol) == [False, protocol in (0, 6), protocol in (0, 6, 17)]
    assert answers("connect", 3, 0, 16) == [False, True, True]
    assert answers("bind", 3, 0, 16) == answers("listen", 3, 1) == [False, False, True]
    assert answers("setsockopt", 3, 6, 31) == [True, False, False]  # TCP_ULP; there is no TCP socket without network
    assert answers("setsockopt", 3, 6, 1) == answers("setsockopt", 3, 1, 31) == [True] * 3
    assert answers("socketpair", 2, 1, 0) == [False] * 3


def test_a_network_policy_changes_nothing_but_the_network() -> None:
    about = {"socket", "connect", "bind", "listen", "setsockopt"}
    checked = {name for check in CHECKS for name in check.names.split()}
    assert {"socket", "connect", "bind", "listen"} <= {name for names, *_ in REFUSED for name in names.split()}
    for machine, table in TABLES.items():
        for name in table.keys() - about - checked:
            found = {
                evaluate(program(machine, allow_exec=True, reach=kind), table[name], AUDIT_ARCH[machine])
                for kind in ("none", "proxy", "host")
            }
            assert len(found) == 1, name


def test_the_error_for_a_missing_namespace_names_its_cure() -> None:
    lost = Mechanism("net_namespace", "missing", "for a test", 1)
    with pytest.raises(SandboxError, match=r"network namespace.*NoNetwork\(\)"):
        prepare(
            PROXIED,
            identity=Identity.for_slot(0),
            report=SandboxReport((lost,), "root"),
            allow_missing=frozenset({"net_namespace"}),
        )


def test_a_message_comes_with_the_descriptor_that_was_sent_and_else_with_none() -> None:
    ours, theirs = descriptors.pair()
    read, write = os.pipe()
    descriptors.send(theirs, b"with", read)
    message, received = descriptors.receive(ours, 100)
    assert message == b"with" and os.fstat(received).st_ino == os.fstat(read).st_ino and received != read
    assert not os.get_inheritable(received)
    os.write(theirs, b"without")
    assert descriptors.receive(ours, 100) == (b"without", -1)
    for fd in (ours, theirs, read, write, received):
        os.close(fd)


LISTENS = """
import os, socket
from toolcell_sandbox.mechanisms import namespaces
namespaces.unshare(("net_namespace",))
fd = namespaces.listen("127.0.0.1", 8123)
with socket.socket(fileno=fd) as listener, socket.create_connection(("127.0.0.1", 8123), 5):
    print(*listener.getsockname(), os.get_blocking(fd), os.get_inheritable(fd))
"""


@pytest.mark.root
def test_the_socket_of_a_fresh_namespace_listens_where_it_was_asked_to_and_nowhere_else() -> None:
    command = [sys.executable, "-I", "-c", LISTENS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["127.0.0.1", "8123", "False", "False"]


def test_landlock_lets_through_no_port_that_of_the_proxy_or_all() -> None:
    ports = sys.modules["toolcell_sandbox.enter"]._ports
    policies = NoNetwork(), ProxyNetwork(allow=["good.example.org"]), HostNetwork()
    assert [ports(policy) for policy in policies] == [(), (PROXY_PORT,), None]
