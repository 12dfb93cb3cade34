"""Functions that misbehave, each in one way. Make tools of them: `tool(misbehaving.segfault)`.

Each runs until it is ended, unless its docstring says what it returns. They are safe to run in a cell only.
"""

import asyncio
import atexit
import builtins
import contextlib
import ctypes
import fcntl
import gc
import io
import itertools
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

import msgpack

from toolcell_tools.context import ToolContext
from toolcell_tools.failures import ToolFailure

_MIB = 1024 * 1024


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)  # no global: the functions travel to cells by value


# -- exceptions and exits ----------------------------------------------------------------------------------------------


def raise_an_exception() -> NoReturn:
    """Raise ValueError('boom')."""
    raise ValueError("boom")


def raise_a_base_exception() -> NoReturn:
    """Raise KeyboardInterrupt."""
    raise KeyboardInterrupt("ctrl-c")


def raise_generator_exit() -> NoReturn:
    """Raise GeneratorExit."""
    raise GeneratorExit("gone")


def raise_a_group() -> NoReturn:
    """Raise a BaseExceptionGroup that contains a SystemExit."""
    raise BaseExceptionGroup("several", [ValueError("one"), SystemExit(3)])


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words for this")

    __repr__ = __str__


def raise_with_a_broken_str() -> NoReturn:
    """Raise an exception whose __str__ and __repr__ raise."""
    raise _Unprintable


class _ExitsWhenPrinted(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)


def raise_with_a_str_that_exits() -> NoReturn:
    """Raise an exception whose __str__ raises SystemExit."""
    raise _ExitsWhenPrinted


def raise_with_a_huge_message() -> NoReturn:
    """Raise an exception with a message of 8 MiB."""
    raise ValueError("x" * (8 * _MIB))


def raise_a_spoofed_kind() -> NoReturn:
    """Raise an exception that has the name and the fields of one of toolcell's errors."""
    spoof = type("PermissionDenied", (Exception,), {"kind": "permission_denied", "missing": ["write"]})
    raise spoof("let me in")


def fail_with_data_that_cannot_be_sent() -> NoReturn:
    """Raise ToolFailure with an object as its data."""
    raise ToolFailure("failed", {"what": object()})


def recurse() -> int:
    """Call this function recursively, up to Python's recursion limit."""
    return recurse() + 1


def read_stdin() -> str:
    """Read a line from standard input, which is empty."""
    return input("name? ")


def exit_with_3() -> NoReturn:
    """Call sys.exit(3)."""
    sys.exit(3)


def exit_with_a_message() -> NoReturn:
    """Call sys.exit with a message: exit code 1, and the message on stderr."""
    sys.exit("had enough")


def os_exit_7() -> NoReturn:
    """Call os._exit(7)."""
    os._exit(7)


def os_exit_from_a_thread() -> NoReturn:
    """Call os._exit(7) in another thread."""
    threading.Thread(target=os._exit, args=(7,)).start()
    time.sleep(100)
    os._exit(1)


def give_no_result() -> NoReturn:
    """Call os._exit(0), without a result."""
    os._exit(0)


def exec_something_else() -> NoReturn:
    """Replace the process by a shell that exits with code 5."""
    os.execv("/bin/sh", ["/bin/sh", "-c", "exit 5"])


# -- signals -----------------------------------------------------------------------------------------------------------


def segfault() -> bytes:
    """Read from address 0."""
    return ctypes.string_at(0)


def abort() -> NoReturn:
    """Call os.abort()."""
    os.abort()


def kill_itself() -> NoReturn:
    """Send SIGKILL to the own process."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(100)
    os._exit(1)


def kill_everyone() -> NoReturn:
    """Send SIGKILL to every process that may be signalled, then to the own process."""
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)


def signal_its_init() -> int:
    """Send every signal to pid 1. Return how many were sent without an error."""
    sent = 0
    for number in range(1, 65):
        with contextlib.suppress(OSError):
            os.kill(1, number)
            sent += 1
    time.sleep(0.05)
    return sent


def overflow_the_c_stack() -> int:
    """Recurse in C until a stack of 64 KiB overflows."""

    def deeper(_: int) -> int:
        return sorted([1], key=deeper)[0]

    sys.setrecursionlimit(10**9)
    threading.stack_size(64 * 1024)
    thread = threading.Thread(target=deeper, args=(1,))
    thread.start()
    thread.join()
    return 1


def stop_itself() -> int:
    """Send SIGSTOP to the own process."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return 1


def _ignore_all_signals() -> None:
    for number in range(1, 65):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def ignore_every_signal() -> NoReturn:
    """Ignore and block every signal for which this is possible, and stay."""
    _ignore_all_signals()
    while True:
        time.sleep(1)


# -- time --------------------------------------------------------------------------------------------------------------


def loop_for_ever() -> NoReturn:
    """Run an endless loop."""
    while True:
        pass


def loop_in_c_for_ever() -> int:
    """Run a computation of minutes in C, holding the GIL."""
    return int(pow(7, 10**9))


def sleep_for_ever() -> None:
    """Sleep without end."""
    time.sleep(10_000)


def swallow_everything() -> NoReturn:
    """Catch every exception, and continue."""
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(1)


async def block_the_loop() -> None:
    """Block the event loop, in an async tool."""
    time.sleep(10_000)


def burn_and_go_on() -> NoReturn:
    """Use the processor without end, and ignore SIGXCPU, the signal at the soft limit."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


def burn_in_children() -> NoReturn:
    """Start four children, each in an endless loop."""
    for _ in range(4):
        if os.fork() == 0:
            loop_for_ever()
    time.sleep(10_000)
    os._exit(1)


def burn_in_short_children() -> NoReturn:
    """Start children one after the other, wait for each, and use the processor for 50 ms in each."""
    while True:
        child = os.fork()
        if child == 0:
            until = time.process_time() + 0.05
            while time.process_time() < until:
                pass
            os._exit(0)
        os.waitpid(child, 0)


# -- memory ------------------------------------------------------------------------------------------------------------


def eat_memory() -> NoReturn:
    """Allocate 1 MiB at a time, without end."""
    eaten: list[bytearray] = []
    while True:
        eaten.append(bytearray(_MIB))


def eat_memory_and_go_on() -> NoReturn:
    """Allocate 1 MiB at a time, and ignore MemoryError."""
    eaten: list[bytearray] = []
    while True:
        with contextlib.suppress(MemoryError):
            eaten.append(bytearray(_MIB))


def ask_for_a_terabyte() -> int:
    """Allocate 1 TiB at once."""
    return len(bytearray(1024 * 1024 * _MIB))


def eat_memory_in_children() -> NoReturn:
    """Start ten children that take 40 MiB each."""
    for _ in range(10):
        if os.fork() == 0:
            held = bytearray(40 * _MIB)
            time.sleep(10_000)
            os._exit(len(held) & 1)
    time.sleep(10_000)
    os._exit(1)


def eat_memory_in_a_memfd() -> NoReturn:
    """Write to a memfd without end."""
    fd = os.memfd_create("memory")
    while True:
        os.write(fd, bytes(_MIB))


def eat_shared_memory() -> NoReturn:
    """Start ten children that each fill an anonymous shared mapping of 20 MiB."""
    for _ in range(10):
        if os.fork() == 0:
            shared = mmap.mmap(-1, 20 * _MIB)
            shared.write(b"x" * (20 * _MIB))
            time.sleep(10_000)
    time.sleep(10_000)
    os._exit(1)


def lock_memory() -> int:
    """Call mlockall. Return its errno."""
    return ctypes.get_errno() if libc().mlockall(3) else 0


# -- processes and descriptors -----------------------------------------------------------------------------------------


def fork_bomb() -> NoReturn:
    """Fork in an endless loop, in every child too."""
    while True:
        os.fork()


def fork_bomb_that_goes_on() -> NoReturn:
    """Fork in an endless loop, in every child too, and ignore errors."""
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def leave_zombies() -> NoReturn:
    """Fork children that exit at once, and never wait for them."""
    while True:
        if os.fork() == 0:
            os._exit(0)


def thread_bomb() -> NoReturn:
    """Start sleeping threads without end."""
    while True:
        threading.Thread(target=time.sleep, args=(10_000,)).start()


def thread_bomb_that_goes_on() -> NoReturn:
    """Start sleeping threads without end, and ignore errors."""
    while True:
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=time.sleep, args=(10_000,)).start()


def open_files() -> NoReturn:
    """Open descriptors without end."""
    opened: list[int] = []
    while True:
        opened.append(os.open("/dev/null", os.O_RDONLY))


def open_pipes() -> NoReturn:
    """Open pipes without end."""
    opened: list[tuple[int, int]] = []
    while True:
        opened.append(os.pipe())


def fork_and_return_twice() -> int:
    """Return the pid that fork returned: a pid in the parent, 0 in the child."""
    return 1 if os.fork() else 0


def fork_and_raise_in_the_child() -> int:
    """Return 1 in the parent, and raise in the child."""
    if os.fork() == 0:
        raise ValueError("from the child")
    return 1


def leave_a_daemon(ctx: ToolContext, name: str) -> str:
    """Leave a daemon named `name`, which ignores every signal and sleeps. Report it, and return `name`."""
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _ignore_all_signals()
            libc().prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
            libc().prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG off
            os.write(tell, b"x")
            time.sleep(10_000)
        os._exit(0)
    os.read(ready, 1)
    ctx.progress(name)
    return name


def leave_threads_and_exit_hooks() -> int:
    """Return 1, and leave an endless thread and an atexit hook that sleeps."""
    atexit.register(time.sleep, 10_000)
    threading.Thread(target=time.sleep, args=(10_000,)).start()
    return 1


# -- disk --------------------------------------------------------------------------------------------------------------


def fill_the_scratch() -> NoReturn:
    """Write files of 1 MiB to the scratch, without end."""
    for number in itertools.count():
        with open(f"/tmp/file-{number}", "wb") as file:
            file.write(bytes(_MIB))
    os._exit(1)


def fill_the_inodes() -> NoReturn:
    """Make empty files in the scratch, without end."""
    for number in itertools.count():
        open(f"/tmp/empty-{number}", "w").close()
    os._exit(1)


def write_a_huge_file() -> NoReturn:
    """Write one file in the scratch, without end."""
    with open("/tmp/huge", "wb") as file:
        while True:
            file.write(bytes(_MIB))


def write_a_huge_file_with_the_default_signal() -> NoReturn:
    """Write one file in the scratch, without end, with the default action of SIGXFSZ."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    write_a_huge_file()


def delete_the_scratch() -> str:
    """Delete /tmp itself. Return the name of the error, or "deleted"."""
    shutil.rmtree("/tmp", ignore_errors=True)
    try:
        os.rmdir("/tmp")
    except OSError as error:
        return type(error).__name__
    return "deleted"


def dig_deep_directories(depth: int = 900) -> int:
    """Make `depth` nested directories with long names in the scratch. Return their depth."""
    os.chdir("/tmp")
    for _ in range(depth):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    return depth


def lock_directories() -> int:
    """Make nested directories of mode 0, with files in them. Return 1."""
    os.makedirs("/tmp/a/b/c")
    for directory in ("/tmp/a/b/c", "/tmp/a/b", "/tmp/a"):
        open(f"{directory}/file", "w").close()
        os.chmod(f"{directory}/file", 0)
        os.chmod(directory, 0)
    return 1


def leave_strange_files(outside: str) -> int:
    """Make files with odd names, a FIFO, and symbolic links: to `outside`, to "/" and to itself. Return 1."""
    os.mkdir("/tmp/dir")
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b" ", b"*"):
        open(b"/tmp/dir/" + name, "w").close()
    os.mkfifo("/tmp/fifo")
    os.symlink(outside, "/tmp/outside")
    os.symlink("/tmp/loop", "/tmp/loop")
    os.symlink("/", "/tmp/dir/root")
    return 1


# -- results -----------------------------------------------------------------------------------------------------------


def return_50_mib() -> str:
    """Return a string of 50 MiB."""
    return "x" * (50 * _MIB)


def return_many_elements() -> list[int]:
    """Return a list of 5,000,000 numbers."""
    return [0] * 5_000_000


def return_an_object() -> object:
    """Return an object that no encoder supports."""
    return object()


def return_a_deep_list() -> list[Any]:
    """Return a list nested 10,000 deep."""
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    return nested


def return_a_list_in_itself() -> list[Any]:
    """Return a list that contains itself."""
    nested: list[Any] = []
    nested.append(nested)
    return nested


def return_a_surrogate() -> str:
    """Return a string that UTF-8 cannot encode."""
    return "\ud800"


def return_a_huge_number() -> int:
    """Return a number of 100,000 digits."""
    return 10**100_000


class _HostileMapping(dict[str, Any]):
    def items(self) -> Any:
        while True:
            time.sleep(0.01)


def return_an_endless_mapping() -> dict[str, Any]:
    """Return a dict whose items() never ends."""
    return _HostileMapping(a=1)


# -- the protocol ------------------------------------------------------------------------------------------------------


def protocol_pipes() -> tuple[int, int]:
    """The descriptors of this process's protocol pipes (in, out), found by a search, as an attacker would."""
    pipes: dict[int, int] = {}
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        with contextlib.suppress(OSError):
            if fd > 2 and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                pipes.setdefault(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE, fd)
    return pipes[os.O_RDONLY], pipes[os.O_WRONLY]


def call_number() -> int:
    """The number of the running call, found in the frames on the stack, as an attacker would."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None:
        frame = frame.f_back
        seq: object = getattr(frame.f_locals.get("call"), "seq", None)
        if isinstance(seq, int):
            return seq
    raise LookupError("no call below")


def frame_of(*fields: object) -> bytes:
    """The bytes of a frame with these fields."""
    body = msgpack.packb(list(fields))
    return struct.pack(">I", len(body)) + body


def write_frames(data: bytes) -> None:
    """Write all bytes to the pipe of outgoing frames."""
    fd = protocol_pipes()[1]
    while data:
        data = data[os.write(fd, data) :]


def read_frame() -> list[Any]:
    """Read one frame from the pipe of incoming frames."""
    fd = protocol_pipes()[0]
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
        data += os.read(fd, 4 - len(data) if len(data) < 4 else 4 + struct.unpack(">I", data[:4])[0] - len(data))
    return cast("list[Any]", msgpack.unpackb(data[4:]))


def _payload(output: object) -> dict[str, object]:
    return {"output": output, "display": "", "artifacts": [], "content": [], "values": {}}


def close_the_pipe() -> int:
    """Close the pipe of outgoing frames, and return."""
    os.close(protocol_pipes()[1])
    return 1


def close_every_descriptor() -> int:
    """Close every descriptor, and return."""
    os.closerange(0, 256)
    return 1


def send_random_bytes() -> NoReturn:
    """Write random bytes to the pipe, then sleep."""
    write_frames(random.Random(7).randbytes(4096))
    time.sleep(10_000)
    os._exit(1)


def send_a_frame_of_4_gib() -> NoReturn:
    """Send the head of a frame of 4 GiB, then sleep."""
    write_frames(b"\xff\xff\xff\xff\x93")
    time.sleep(10_000)
    os._exit(1)


def send_an_empty_frame() -> NoReturn:
    """Send a frame of length 0, then sleep."""
    write_frames(b"\0\0\0\0\0")
    time.sleep(10_000)
    os._exit(1)


def send_half_a_frame() -> NoReturn:
    """Send the first half of a result, then call os._exit(0)."""
    data = frame_of(16, call_number(), _payload("half"))
    write_frames(data[: len(data) // 2])
    os._exit(0)


def send_half_a_frame_and_stay() -> NoReturn:
    """Send the first half of a result, then sleep."""
    data = frame_of(16, call_number(), _payload("half"))
    write_frames(data[: len(data) // 2])
    time.sleep(10_000)
    os._exit(1)


def send_two_results() -> str:
    """Send a forged result "first" and another one, in one write. Then return the regular result."""
    write_frames(frame_of(16, call_number(), _payload("first")) + frame_of(16, call_number(), _payload("second")))
    return "third"


def send_a_forged_call_number() -> NoReturn:
    """Send a result for another call, then sleep."""
    write_frames(frame_of(16, call_number() + 1, _payload("forged")))
    time.sleep(10_000)
    os._exit(1)


def send_an_unknown_message() -> NoReturn:
    """Send a message of an unknown kind, then sleep."""
    write_frames(frame_of(99, call_number(), {}))
    time.sleep(10_000)
    os._exit(1)


def send_a_message_of_the_init() -> NoReturn:
    """Send a message that only the cell's init may send, on the pipe of the call, then sleep."""
    write_frames(frame_of(35, call_number(), 0, 0.0, 0))
    time.sleep(10_000)
    os._exit(1)


def send_a_result_of_wrong_types() -> NoReturn:
    """Send a result whose payload is a string, then sleep."""
    write_frames(frame_of(16, call_number(), "payload"))
    time.sleep(10_000)
    os._exit(1)


def send_a_result_without_its_parts() -> NoReturn:
    """Send a result with an empty payload, then sleep."""
    write_frames(frame_of(16, call_number(), {}))
    time.sleep(10_000)
    os._exit(1)


def send_a_result_with_bad_parts() -> NoReturn:
    """Send a result with malformed artifacts and content, then sleep."""
    payload = _payload(1) | {"artifacts": [{"path": 7}], "content": [{"type": "executable"}, 3]}
    write_frames(frame_of(16, call_number(), payload))
    time.sleep(10_000)
    os._exit(1)


def send_a_result_as_deep_as_frames_go() -> NoReturn:
    """Send a result whose output is nested 1,000 deep, then sleep."""
    body = b"\x93\x10" + msgpack.packb(call_number()) + b"\x85\xa6output" + b"\x91" * 1000 + b"\xc0"
    for name, empty in ((b"display", b"\xa0"), (b"artifacts", b"\x90"), (b"content", b"\x90"), (b"values", b"\x80")):
        body += bytes([0xA0 + len(name)]) + name + empty
    write_frames(struct.pack(">I", len(body)) + body)
    time.sleep(10_000)
    os._exit(1)


def send_a_result_with_duplicate_keys() -> NoReturn:
    """Send a result whose payload has the key of the output twice, then sleep."""
    body = b"\x93\x10" + msgpack.packb(call_number()) + b"\x82\xa6output\x01\xa6output\x02"
    write_frames(struct.pack(">I", len(body)) + body)
    time.sleep(10_000)
    os._exit(1)


def send_an_error_with_a_made_up_reason() -> NoReturn:
    """Send an error with an unknown reason, then sleep."""
    write_frames(frame_of(17, call_number(), "supervisor_is_wrong", "believe me", {}))
    time.sleep(10_000)
    os._exit(1)


def flood_with_frames() -> NoReturn:
    """Send 150,000 progress frames, in writes of 64 KiB, then sleep."""
    one = frame_of(18, call_number(), "", None)
    write_frames(one * 150_000)
    time.sleep(10_000)
    os._exit(1)


def flood_with_requests() -> NoReturn:
    """Send 1,000 requests without reading a reply, then sleep."""
    seq = call_number()
    write_frames(b"".join(frame_of(20, seq, number, "nothing", {}) for number in range(1, 1_001)))
    time.sleep(10_000)
    os._exit(1)


def ask_and_read_nothing(operation: str, arguments: dict[str, Any], times: int) -> NoReturn:
    """Send the same request `times` times without reading a reply, then sleep."""
    _ask(operation, arguments, times)
    time.sleep(10_000)
    os._exit(1)


def send_the_largest_requests() -> NoReturn:
    """Send 256 requests with bodies of 4 MiB without reading a reply, then sleep."""
    _ask(
        "http.request", {"method": "POST", "url": "https://a.example.org/", "headers": {}, "body": bytes(4 * _MIB)}, 256
    )
    time.sleep(10_000)
    os._exit(1)


def send_requests_of_wide_text() -> NoReturn:
    """Send 256 requests with 4 MiB of text, which takes four times as much memory when decoded, then sleep."""
    _ask("channel.send", {"text": "x", "more": "\U0001f600" + "x" * (4 * _MIB)}, 256)
    time.sleep(10_000)
    os._exit(1)


def send_requests_of_many_objects() -> NoReturn:
    """Send 256 requests with 900 lists and 9,000 texts each, then sleep."""
    _ask("channel.send", {"text": "x", "more": [[[] for _ in range(900)], ["xy"] * 9_000]}, 256)
    time.sleep(10_000)
    os._exit(1)


def _ask(operation: str, arguments: dict[str, Any], times: int) -> None:
    seq = call_number()
    for number in range(1, times + 1):
        write_frames(frame_of(20, seq, number, operation, arguments))


def flood_with_progress() -> NoReturn:
    """Report as much progress as a call may report, then sleep."""
    write_frames(frame_of(18, call_number(), "x", None) * 90_000)
    time.sleep(10_000)
    os._exit(1)


def flood_with_output() -> NoReturn:
    """Send 13 MB of forged command output, in small and large pieces, then sleep."""
    number = call_number()
    small = frame_of(21, number, 1, 1, b"x") * 2_000
    large = frame_of(21, number, 2, 0, b"x" * 32_000) * 10
    for _ in range(40):
        write_frames(small + large)
    time.sleep(10_000)
    os._exit(1)


def send_bad_output(stream: int, skipped: int, size: int) -> NoReturn:
    """Send output that no command can have, then sleep.

    Args:
        stream: The number of its stream.
        skipped: How many bytes before it are left out.
        size: Its size in bytes.
    """
    write_frames(frame_of(21, call_number(), stream, skipped, b"x" * size))
    time.sleep(10_000)
    os._exit(1)


def flood_with_logs() -> NoReturn:
    """Log as much as a call may log, with many small objects, then sleep."""
    fields: dict[str, Any] = {"a": [[[] for _ in range(900)], [""] * 9_000]}
    write_frames(frame_of(19, call_number(), "info", "x", fields) * 400)
    time.sleep(10_000)
    os._exit(1)


def send_all_but_the_end_of_a_result(size: int) -> NoReturn:
    """Send a result of `size` bytes without its last byte, then sleep."""
    write_frames(frame_of(16, call_number(), _payload("x" * size))[:-1])
    time.sleep(10_000)
    os._exit(1)


def answer_from_a_child() -> int:
    """Start a child that writes garbage to the pipe without end. Return 1 after its first write."""
    ready, tell = os.pipe()
    if os.fork() == 0:
        write_frames(bytes(64))
        os.write(tell, b"x")
        while True:
            write_frames(bytes(64))
    os.read(ready, 1)
    return 1


# -- output ------------------------------------------------------------------------------------------------------------


def flood_the_output() -> NoReturn:
    """Write to both streams, without end."""
    while True:
        os.write(1, b"o" * 65_536)
        os.write(2, b"e" * 65_536)


def print_much(out: int, err: int) -> int:
    """Print `out` bytes to stdout and `err` to stderr, each between "<" and ">". Return 1."""
    for stream, size in ((sys.stdout, out), (sys.stderr, err)):
        stream.write("<" + "x" * (size - 2) + ">")
        stream.flush()
    return 1


def print_garbage() -> int:
    """Print bytes that are not UTF-8. Return 1."""
    os.write(1, b"\xff\xfe\x00\x1b[2J\x80")
    return 1


def close_stdout() -> int:
    """Close stdout and stderr, the objects and the descriptors. Return 1."""
    sys.stdout.close()
    sys.stderr.close()
    for fd in (1, 2):
        with contextlib.suppress(OSError):
            os.close(fd)
    return 1


def replace_stdout() -> int:
    """Replace sys.stdout and sys.stderr by objects that are not files. Return 1."""
    sys.stdout = cast("Any", None)
    sys.stderr = cast("Any", object())
    return 1


def replace_stdout_by_one_that_raises() -> int:
    """Replace sys.stdout by an object whose flush() raises SystemExit. Return 1."""

    class Raising(io.StringIO):
        def flush(self) -> None:
            raise SystemExit(4)

    sys.stdout = Raising()
    return 1


# -- Python's own state ------------------------------------------------------------------------------------------------


async def cancel_every_task() -> int:
    """Cancel every task of the event loop, in an async tool."""
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(1)
    return 1


async def stop_the_loop() -> int:
    """Stop the event loop, in an async tool."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(1)
    return 1


async def leave_tasks() -> int:
    """Leave a task that ignores its cancellation, in an async tool. Return 1."""

    async def stubborn() -> None:
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    leave_tasks.__dict__["task"] = asyncio.ensure_future(stubborn())
    await asyncio.sleep(0)
    return 1


def patch_the_serialisers() -> int:
    """Break msgpack and json for all later users. Return 1."""

    def broken(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("patched")

    for module, names in ((msgpack, ("packb", "unpackb", "Packer", "Unpacker")), (json, ("dumps", "loads"))):
        for name in names:
            setattr(module, name, broken)
    cast("Any", json.encoder).JSONEncoder.encode = broken
    return 1


def patch_os_write() -> int:
    """Replace os.write by a function that writes nothing and reports success. Return 1."""

    def pretend(_fd: int, data: bytes) -> int:
        return len(data)

    cast("Any", os).write = pretend
    return 1


def _nothing(*_: object) -> None:
    pass


def change_everything() -> int:
    """Change environment, cwd, umask, limits, signals, modules, path, builtins, gc and hooks. Return 1."""
    os.environ.clear()
    os.environ["LEFT"] = "over"
    os.chdir("/usr")
    os.umask(0o777)
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
    signal.signal(signal.SIGCHLD, _nothing)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    sys.path.insert(0, "/tmp")
    sys.modules["left_over"] = sys
    cast("Any", builtins).left_over = 1
    cast("Any", uuid).uuid4 = lambda: "always this"
    tempfile.tempdir = "/usr"
    random.seed(1)
    gc.disable()
    sys.setswitchinterval(1000)
    sys.setrecursionlimit(200)
    threading.setprofile(_nothing)
    os.nice(5)
    with open("/tmp/json.py", "w") as file:
        file.write("raise SystemExit(1)")
    return 1


# -- well-behaved tools, whose results must not change -----------------------------------------------------------------


def look_around() -> dict[str, Any]:
    """Return everything that a call could leave for the next call. The result is the same in every call of a session if
    nothing is left. Only `number` (the own pid) differs: it is low in a new cell and grows in a reused cell.
    """
    me = os.getpid()
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    patched = [json.dumps, json.loads, msgpack.packb, msgpack.Packer, os.write, uuid.uuid4, json.JSONEncoder.encode]
    return {
        "number": me,
        "processes": [pid for pid in pids if pid not in (1, me)],
        "threads": threading.active_count(),
        "scratch": sorted(os.fsencode(name).decode(errors="replace") for name in os.listdir("/tmp")),
        "free_inodes": os.statvfs("/tmp").f_favail,
        "free_blocks": os.statvfs("/tmp").f_bavail,
        "root": sorted(os.listdir("/")),
        "environ": dict(os.environ),
        "cwd": os.getcwd(),
        "umask": os.umask(0o022),
        "nice": os.nice(0),
        "limits": {name: list(resource.getrlimit(getattr(resource, name))) for name in _LIMITS},
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "descriptors": dict(_descriptors()),
        "modules": sorted(sys.modules),
        "path": list(sys.path),
        "builtins": sorted(vars(builtins)),
        "patched": [f"{one.__module__}.{one.__qualname__}" for one in cast("list[Callable[..., Any]]", patched)],
        "streams": [type(stream).__qualname__ for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "interpreter": [gc.isenabled(), sys.getrecursionlimit(), sys.getswitchinterval(), tempfile.gettempdir()],
        "hooks": [str(sys.gettrace()), str(sys.getprofile()), sys.excepthook.__module__],
    }


_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]


def _descriptors() -> Iterator[tuple[str, str]]:
    for name in sorted(os.listdir("/proc/self/fd")):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            yield name, os.readlink(f"/proc/self/fd/{name}").partition(":")[0]


def wait_for_file(ctx: ToolContext, name: str, token: str) -> dict[str, Any]:
    """Report `token`, then wait for a file `name` in the workspace. Return the token, and a sum that took memory."""
    held = bytearray(range(256)) * 4096
    ctx.progress(token)
    polls = 0
    while not os.path.exists(os.path.join(ctx.workspace_root, name)):
        polls += 1
        time.sleep(0.01)
    return {"token": token, "sum": sum(held[::64]), "polls": polls}


def echo(value: Any = None) -> Any:
    """Return `value`."""
    return value
