"""The shell handle: output, ends, timeouts, and nothing left behind."""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import PATIENCE_S

from toolcell_tools import Shell, ToolFailure
from toolcell_tools.shell import HeadTail


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def gone(pid: int) -> bool:
    """Whether the process ends, or is a zombie of someone else's."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_command_gives_its_output_and_exit_code(shell: Shell) -> None:
    done = shell.run("echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code, done.timed_out) == ("out\n", "err\n", 3, False)


def test_a_command_runs_in_the_workspace_or_below(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert shell.run("pwd").stdout.strip() == str(tmp_path)
    assert shell.run("pwd", cwd="sub").stdout.strip() == str(tmp_path / "sub")
    for cwd, message in {"..": "outside the workspace", "none": "is not a directory in the workspace"}.items():
        with pytest.raises(ToolFailure, match=message):
            shell.run("pwd", cwd=cwd)


def test_where_the_call_sees_no_workspace_no_command_runs(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match=r"has no workspace"):
        Shell(tmp_path / "unseen").run("pwd")


def test_a_command_has_no_input(shell: Shell) -> None:
    assert shell.run("cat; echo end").stdout == "end\n"


def test_a_command_killed_by_a_signal_has_a_negative_exit_code(shell: Shell) -> None:
    assert shell.run("kill -9 $$").exit_code == -9


def test_a_timeout_kills_the_whole_group_and_keeps_the_output(shell: Shell) -> None:
    done = shell.run("sleep 3600 & echo $!; sleep 3600", timeout_s=5)
    assert (done.timed_out, done.exit_code) == (True, None)
    assert gone(int(done.stdout))


def test_a_command_that_ignores_signals_is_killed_too(shell: Shell) -> None:
    assert shell.run("trap '' TERM INT HUP; while :; do sleep 1; done", timeout_s=0.3).timed_out


def test_what_stays_in_the_background_does_not_hold_the_call_up(shell: Shell) -> None:
    done = shell.run("sleep 3600 & echo $!")
    assert (done.exit_code, done.timed_out) == (0, False)
    assert gone(int(done.stdout))


def test_a_background_writer_without_end_does_not_hold_the_call_up(shell: Shell) -> None:
    done = shell.run("yes & sleep 0.1", timeout_s=PATIENCE_S)
    assert (done.exit_code, done.timed_out) == (0, False)


def test_endless_output_is_bounded_and_counted_exactly(shell: Shell) -> None:
    done = shell.run("head -c 5000000 /dev/zero | tr '\\0' x; echo END")
    assert done.stdout_omitted_bytes == 5_000_004 - 30_000
    assert "[… 4,970,004 of 5,000,004 bytes left out …]" in done.stdout
    assert done.stdout.endswith("xEND\n")
    assert len(done.stdout) < 31_000


def test_output_that_is_not_utf8_is_shown_with_replacement_characters(shell: Shell) -> None:
    assert shell.run("printf 'a\\377b'").stdout == "a\ufffdb"


def test_no_descriptor_is_left_open(shell: Shell) -> None:
    before = set(os.listdir("/proc/self/fd"))
    shell.run("echo x; sleep 3600 &", timeout_s=PATIENCE_S)
    shell.run("sleep 5", timeout_s=0.1)
    asyncio.run(shell.arun("echo x"))
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("command", "timeout_s", "message"),
    [
        ("a\0b", None, "NUL"),
        ("true", 0, "more than 0"),
        ("true", float("nan"), "more than 0"),
        ("\ud800", None, "could not"),
    ],
)
def test_a_command_that_cannot_start_says_why(
    shell: Shell, command: str, timeout_s: float | None, message: str
) -> None:
    with pytest.raises(ToolFailure, match=message):
        shell.run(command, timeout_s=timeout_s)


@pytest.mark.parametrize("size", [131_071, 131_072, 1_048_576])
@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_command_of_up_to_1_mib_runs_as_a_short_one_does(
    shell: Shell, tmp_path: Path, letter: str, size: int
) -> None:
    before, after = "trap 'echo bye' EXIT; cat; cat <<'E' | wc -c\n", "\nE\necho ${#0} $# >args; pwd; exit 3"
    room = size - len(f"{before}{after}".encode())
    text = letter * (room // len(letter.encode())) + "." * (room % len(letter.encode()))
    found = set(os.listdir(tempfile.gettempdir()))
    done = shell.run(f"{before}{text}{after}")
    assert (done.stdout, done.stderr, done.exit_code) == (f"{room + 1}\n{tmp_path}\nbye\n", "", 3)
    assert (tmp_path / "args").read_text().split()[1] == "0"
    assert not {name for name in set(os.listdir(tempfile.gettempdir())) - found if name.startswith("command-")}


def test_a_longer_command_is_refused_with_its_size_the_bound_and_a_cure(shell: Shell) -> None:
    with pytest.raises(ToolFailure, match=r"has 1,048,577 bytes, and at most 1,048,576 can be run; write it to a file"):
        shell.run("é" * 524_288 + "x")


def test_a_long_command_may_remove_its_own_file(shell: Shell) -> None:
    remove = 'case "$0" in */command-*) rm "$0" && echo removed;; esac'
    assert shell.run(f"{remove}; : {'x' * 200_000}; echo done").stdout == "removed\ndone\n"


def test_commands_are_for_bash(shell: Shell) -> None:
    done = shell.run("set -o pipefail; a=(1 2 3); false | true || [[ ${a[-1]} == 3 ]] && printf '%s\n' {x..z} $'\\x41'")
    assert (done.stdout, done.stderr) == ("x\ny\nz\nA\n", "")


def test_async_commands_run_side_by_side(shell: Shell) -> None:
    async def main() -> list[str]:
        meet = "touch r$$; while [ $(ls r* | wc -l) -lt 3 ]; do sleep 0.1; done"  # one after another, they never end
        results = await asyncio.gather(*(shell.arun(f"{meet}; echo {n}") for n in range(3)))
        return [done.stdout for done in results]

    assert asyncio.run(main()) == [f"{n}\n" for n in range(3)]


def test_cancelling_an_async_command_kills_it(shell: Shell, tmp_path: Path) -> None:
    async def main() -> None:
        running = asyncio.ensure_future(shell.arun("echo $$ > pid; sleep 60"))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert gone(int((tmp_path / "pid").read_text()))


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 60))
def test_head_and_tail_are_exact_however_the_stream_is_chunked(chunks: list[bytes], limit: int) -> None:
    buffer = HeadTail(limit)
    for chunk in chunks:
        buffer.feed(bytes(byte % 26 + 97 for byte in chunk))
    whole = b"".join(bytes(byte % 26 + 97 for byte in chunk) for chunk in chunks).decode()
    assert buffer.total == len(whole)
    assert buffer.omitted == max(0, len(whole) - limit)
    text = buffer.text()
    if buffer.omitted:
        half = limit // 2
        assert text.startswith(whole[: limit - half])
        assert text.endswith("]\n" + whole[len(whole) - half :])
    else:
        assert text == whole
