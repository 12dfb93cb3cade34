"""`toolcell serve --stdio`, with the SDK's client and with hostile ones."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from tests.helpers import PATIENCE_S

from .test_calls import MODES, approves, says_ann, text_of

ROOT = Path(__file__).parents[3]
TARGET = "tests.mcp.server.examples:TOOLS"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "toolcell.cli", "serve", "--stdio", *arguments]


def parameters(*arguments: str) -> StdioServerParameters:
    program, *rest = command(*arguments)
    environment = {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
    return StdioServerParameters(command=program, args=rest, cwd=ROOT, env=environment)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_starts_the_command_has_the_tools(tmp_path: Path, mode: str) -> None:
    options: dict[str, Any] = {"mode": mode, "elicitation_callback": says_ann}
    async with Client(parameters(TARGET, "--workspace", str(tmp_path)), **options) as client:
        assert "add" in [each.name for each in (await client.list_tools()).tools]
        assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert text_of(await client.call_tool("hello", {})) == "hello Ann"
        assert (await client.call_tool("crash", {})).is_error
        await client.call_tool("save", {"path": "a", "text": "x" * 1_000_000})
    assert (tmp_path / "a").stat().st_size == 1_000_000


@pytest.mark.anyio
async def test_the_profile_is_the_operators_and_comes_from_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "toolcell.toml"
    settings.write_text('[profiles.branch]\ngrants = ["read"]\n')
    work = tmp_path / "work"
    work.mkdir()
    common = (TARGET, "--workspace", str(work), "--config", str(settings))
    for options, saves in (((), True), (("--profile", "branch"), False)):
        async with Client(parameters(*common, *options), mode="legacy") as client:
            assert ("save" in [each.name for each in (await client.list_tools()).tools]) is saves
            assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"


@pytest.mark.anyio
async def test_kind_and_approval_are_the_operators(tmp_path: Path) -> None:
    worker = parameters(TARGET, "--workspace", str(tmp_path), "--kind", "worker")
    async with Client(worker, mode="legacy") as client:
        assert "save" not in [each.name for each in (await client.list_tools()).tools]
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("save", {"path": "a", "text": "b"})
    asking = parameters(TARGET, "--workspace", str(tmp_path), "--approve-by-elicitation")
    async with Client(asking, elicitation_callback=approves) as client:
        assert text_of(await client.call_tool("pay", {"amount": 1})) == "paid 1"


@contextmanager
def piped(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command(TARGET, *arguments), cwd=ROOT, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def send(process: "subprocess.Popen[bytes]", *messages: object) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
    process.stdin.flush()


def receive(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def rpc(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


INITIALIZE = rpc(
    1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "test", "version": "1"}
)


def test_long_deep_and_broken_lines_are_answered_and_the_next_one_is_served(tmp_path: Path) -> None:
    with piped("--workspace", str(tmp_path)) as process:
        send(process, INITIALIZE)
        assert receive(process)["result"]["serverInfo"] == {"name": "toolcell", "version": version("toolcell")}
        send(process, b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"' + b"y" * 20_000_000 + b'"}}')
        assert "longer than" in receive(process)["error"]["message"]
        deep = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001
        for broken in (deep, b"[" * 1_000_000, b"{", b"\xff\xfe", b"null", b"1", b'{"jsonrpc":"2.0"}'):
            send(process, broken)
            assert receive(process)["error"]["code"] == -32700
        send(process, b"", b"   ", rpc(8, "ping"))
        assert receive(process) == {"jsonrpc": "2.0", "id": 8, "result": {}}


def test_a_client_that_reads_nothing_is_not_read_and_the_server_ends_with_it(tmp_path: Path) -> None:
    with piped("--workspace", str(tmp_path)) as process:
        send(process, INITIALIZE)
        receive(process)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        line, until, sent = json.dumps(rpc(9, "tools/list")).encode() + b"\n", time.monotonic() + 4, 0
        while time.monotonic() < until:
            try:
                sent += os.write(process.stdin.fileno(), line)
            except BlockingIOError:
                time.sleep(0.05)
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = int(next(each for each in status.splitlines() if each.startswith("VmRSS")).split()[1])
        assert sent < 2_000_000 and resident < 400_000
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        assert process.wait(PATIENCE_S) is not None


def test_open_requests_are_bounded_in_bytes_together_and_short_ones_are_served(tmp_path: Path) -> None:
    with piped("--workspace", str(tmp_path)) as process:
        send(process, INITIALIZE)
        receive(process)
        send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        long = "x" * 3_900_000
        rest = {"name": "sleep", "arguments": {"seconds": 50, "mark": "m"}}
        calls = [rpc(id, "tools/call", **rest, long=long) for id in range(10, 16)]
        send(process, *calls, rpc(20, "ping"))
        first = [receive(process) for _ in range(3)]
        refused = [each["id"] for each in first if "error" in each]
        assert refused == [14, 15] and "too long together" in first[0]["error"]["message"]
        assert {"jsonrpc": "2.0", "id": 20, "result": {}} in first
        (tmp_path / "wake").touch()
        open_ones = {10, 11, 12, 13}
        while open_ones:
            open_ones.discard(receive(process).get("id", 0))
        send(process, rpc(21, "ping", long=long))
        while receive(process).get("id") != 21:
            pass


def test_cancelled_requests_have_no_answer_and_take_no_room(tmp_path: Path) -> None:
    with piped("--workspace", str(tmp_path)) as process:
        send(process, INITIALIZE)
        receive(process)
        send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        for id in range(100, 240):
            send(process, rpc(id, "tools/call", name="sleep", arguments={"seconds": 30.0, "mark": "m"}))
            send(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
        send(process, rpc(8, "ping"))
        while receive(process).get("id") != 8:
            pass


def test_what_the_server_itself_prints_is_no_message(tmp_path: Path) -> None:
    module = tmp_path / "printing.py"
    module.write_text(
        'print("at import")\n\ndef shout(word: str) -> str:\n    "Shout."\n    print(word)\n    return word.upper()\n'
    )
    arguments = [sys.executable, "-m", "toolcell.cli", "serve", "--stdio", "printing:shout", "--workspace", "work"]
    messages = [INITIALIZE, rpc(2, "tools/call", name="shout", arguments={"word": "a"})]
    text = "".join(json.dumps(each) + "\n" for each in messages)
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(text)
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    assert answers[1]["result"]["content"][0]["text"] == "A"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Say how to serve"),
        (["--stdio"], "nothing to serve"),
        (["--stdio", "nowhere:TOOLS"], "no 'nowhere:TOOLS'"),
        (["--stdio", "nowhere_at_all"], "no module 'nowhere_at_all'"),
        (["--stdio", TARGET, "--workspace", "/nowhere/at/all"], "workspace"),
        (["--stdio", TARGET, "--workspace", "~/x"], "workspace begins with '~', which is not expanded here"),
        (["--stdio", TARGET, "--workspace", ""], "workspace is empty"),
        (["--http", TARGET, "--host", "0.0.0.0"], "--tokens"),
        (["--http", TARGET, "--tokens", "/nowhere"], "/nowhere"),
        (["--http", TARGET, "--tokens-env", "NOT_THERE"], "NOT_THERE"),
    ],
)
def test_wrong_use_is_told_in_a_line(arguments: list[str], said: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "toolcell.cli", "serve", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 2 and said in run.stderr and "Traceback" not in run.stderr
    assert run.stdout == ""
