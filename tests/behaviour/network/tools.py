"""Tools that use the network of their cell in arbitrary ways. They are shipped by value."""

import os
import socket
import time
from contextlib import ExitStack
from typing import Any

from toolcell import Capability, tool

PROXY = ("127.0.0.1", 3128)


def exchange(request: bytes, *, pause: float = 0.0, half_close: bool = False) -> bytes:
    """Send raw bytes to the proxy (slowly, with `pause`), and return the whole answer."""
    with socket.create_connection(PROXY, 15) as stream:
        try:
            if pause:
                for byte in request:
                    stream.send(bytes([byte]))
                    time.sleep(pause)
            else:
                stream.sendall(request)
            if half_close:
                stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        answer = b""
        try:
            while data := stream.recv(65536):
                answer += data
        except OSError as error:
            answer += f" [{type(error).__name__}]".encode()
        return answer


@tool(needs={Capability.NET})
def speak(requests: list[str], pause: float = 0.0, half_close: bool = False) -> list[str]:
    """Send each request on a separate connection, as Latin-1. Return the answers."""
    answers = [exchange(request.encode("latin-1"), pause=pause, half_close=half_close) for request in requests]
    return [answer.decode("latin-1") for answer in answers]


@tool(needs={Capability.NET})
def reach(places: list[tuple[str, int]]) -> list[str]:
    """Connect to each place without the proxy. Return the name of each error, or the greeting."""
    said: list[str] = []
    for host, port in places:
        try:
            with socket.create_connection((host, port), 3) as stream:
                said.append(stream.recv(100).decode())
        except OSError as error:
            said.append(type(error).__name__ if error.errno is None else os.strerror(error.errno))
    return said


@tool(needs={Capability.NET})
def make_sockets() -> dict[str, str]:
    """Try to make sockets of all kinds."""
    kinds: dict[str, tuple[int, int, int]] = {
        "tcp": (socket.AF_INET, socket.SOCK_STREAM, 0),
        "tcp6": (socket.AF_INET6, socket.SOCK_STREAM, 6),
        "udp": (socket.AF_INET, socket.SOCK_DGRAM, 0),
        "udp6": (socket.AF_INET6, socket.SOCK_DGRAM, 0),
        "raw": (socket.AF_INET, socket.SOCK_RAW, 1),
        "ping": (socket.AF_INET, socket.SOCK_DGRAM, 1),
        "mptcp": (socket.AF_INET, socket.SOCK_STREAM, 262),
        "sctp": (socket.AF_INET, socket.SOCK_STREAM, 132),
        "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
        "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0),
        "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
        "vsock": (40, socket.SOCK_STREAM, 0),
        "alg": (38, 5, 0),
    }
    made: dict[str, str] = {}
    for name, (family, kind, protocol) in kinds.items():
        try:
            socket.socket(family, kind, protocol).close()
            made[name] = "made"
        except OSError as error:
            made[name] = os.strerror(error.errno or 0)
    for name in ("bind", "listen"):
        with socket.socket() as stream:
            try:
                stream.bind(("127.0.0.1", 0)) if name == "bind" else stream.listen()
                made[name] = "done"
            except OSError as error:
                made[name] = os.strerror(error.errno or 0)
    return made


@tool
def without_net() -> list[Any]:
    """Return how the proxy looks from a cell without NET."""
    try:
        with socket.create_connection(PROXY, 3):
            answer = "connected"
    except OSError as error:
        answer = os.strerror(error.errno or 0)
    return [answer, sorted(name for name in os.environ if "proxy" in name.lower())]


@tool(needs={Capability.NET})
def leave_open(request: str, fork: bool = False) -> str:
    """Open a tunnel and return without closing it. With `fork`, a child in a separate session holds it too."""
    stream = socket.create_connection(PROXY, 10)
    stream.sendall(request.encode())
    answer = stream.recv(4096).decode()
    if fork and os.fork() == 0:
        os.setsid()
        while True:
            time.sleep(1)
    os.set_inheritable(stream.detach(), True)
    return answer


@tool(needs={Capability.NET})
def flood(count: int) -> list[str]:
    """Open `count` connections at the same time. Return the start of each answer."""
    with ExitStack() as stack:
        streams: list[socket.socket] = []
        for _ in range(count):
            streams.append(stack.enter_context(socket.create_connection(PROXY, 10)))
        time.sleep(0.3)
        told: list[str] = []
        for stream in streams:
            stream.settimeout(0.05)
            try:
                told.append(stream.recv(100).decode()[:12])
            except OSError:
                told.append("")
        return told
