"""The call process: it waits for its call, runs the tool, answers, and ends. All tool code runs here."""

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

from toolcell.wire.frames import TooLarge, Unpackable
from toolcell.wire.messages import BindSession, Call, Error
from toolcell.wire.switches import is_on
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.late_paths import Lock
from toolcell_sandbox.mechanisms.landlock import call_layer
from toolcell_sandbox.mechanisms.rlimits import call_cpu_limit, limit_cpu_again
from toolcell_sandbox.view import Bind
from toolcell_tools import definition
from toolcell_tools.definition import Tool
from toolcell_tools.raised import MESSAGE_CHARS

from . import cheap_forks, live_output, perform, warm
from .context import Contexts
from .control import OWN_INPUT, READ_BYTES, Options, binds_of, read_all, unpacked
from .loading import Loaded, LoadError

LIBRARIES = ("asyncio", "cloudpickle", "hashlib", "pydantic", "subprocess", "toolcell_tools.result")
"""The libraries that a zygote preloads if tools need them. Each takes some ms and MB. A user's module is never here."""

_BASE = "toolcell_tools.base."
_loaded: set[str] = set()


def preload() -> None:
    """In the zygote, set up what every call needs, and switch off schemas for tools that are imported later."""
    definition.deriving = False
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would raise KeyboardInterrupt in the init's poll
    live_output.unbuffer()
    perform.unbuffer_c()
    warm.rehearse(answer)


def preload_for(names: Iterable[str] | None) -> bool:
    """In the zygote, load libraries that cells would otherwise load unshared. Returns whether any were loaded.

    Only names in `LIBRARIES`, and base tools, are loaded. None means all of `LIBRARIES`.
    """
    wanted = set(LIBRARIES if names is None else names) - _loaded
    for name in sorted(name for name in wanted if name in LIBRARIES or name.startswith(_BASE)):
        module = import_module(name)
        if name == "pydantic":
            module.TypeAdapter(module.create_model("Anything"))  # loads the lazy rest of the package
        elif name == "hashlib":
            module.sha256()  # the first use initialises OpenSSL
        for found in vars(module).values():
            if isinstance(found, Tool):
                found.prepare()
    _loaded.update(wanted)
    return bool(wanted)


class CallTemplate(NamedTuple):
    """What the init prepares once for all its call processes, so that none has to repeat the work."""

    steps: tuple[Callable[[], object], ...]  # the first steps of a call process
    loaded: Loaded
    contexts: Contexts  # by the fork, each call process has its own copy, with its own link
    warming: warm.Warming | None  # for a process that waits for its call
    options: Options
    lock: Lock | None  # the file rules of a cell that has no session yet


def prepare(loaded: Loaded, options: Options, contexts: Contexts, lock: Lock | None) -> CallTemplate:
    """Make the template, in the init, before the first fork."""
    steps: list[Callable[[], object]] = [*call_layer()]
    if not options.kept:
        steps.append(call_cpu_limit(options.cpu_s))
    steps += (cheap_forks.resume, *fresh_randomness())
    gc.enable()
    warm.look_up(loaded, contexts.link)
    warming = warm.Warming.of(loaded) if options.standby and is_on("warm_up") else None
    return CallTemplate(tuple(steps), loaded, contexts, warming, options, lock)


def enter_workspace(cwd: str) -> None:
    """Change to the workspace. Raises SandboxError if that fails, for example because the directory was replaced."""
    try:
        os.chdir(cwd)
    except OSError as error:
        cure = "Put the session's directory back, or open a session on another one."
        raise SandboxError(
            "The workspace cannot be entered", step="chdir", errno=error.errno or 0, cure=cure
        ) from error


def bind(prepared: CallTemplate, told: bytes) -> tuple[CallTemplate, Sequence[Bind]]:
    """Bind the process to a session, by the body of a `BindSession`: in the init of an unbound cell, and in its waiting
    call process. Returns the template of the session's calls, and the session's paths. Raises SandboxError."""
    said, lock = unpacked(told), prepared.lock
    if not isinstance(said, BindSession) or lock is None:
        os._exit(76)
    binds = binds_of(said.binds)
    lock.allow(binds)  # in both processes: neither has to wait until the other has done it
    options = prepared.options.bound(said)
    enter_workspace(options.cwd)
    lock.close()
    lock.verify(binds)
    contexts = Contexts(options.session, options.protects, prepared.contexts.link, options.file_bytes)
    return prepared._replace(contexts=contexts, options=options, lock=None), binds


def serve(prepared: CallTemplate, gate: int = -1, opener: int = -1) -> NoReturn:
    """Become the call process: add a Landlock layer, limits and fresh randomness, then wait for the call.

    With a `gate`, this process was forked ahead. Until the init closes the other end of the gate, `opener`, another
    call may run, and frames in the pipe are for that call.
    """
    if gate >= 0:
        os.close(opener)
    steps, loaded, contexts, warming, options, lock = prepared
    for step in steps:
        step()
    if warming is not None:
        warm.warm_up(warming, contexts)
    if lock is not None and is_on("warm_up"):
        warm.read_session(options, contexts.link)
    if gate >= 0:
        told = os.read(gate, READ_BYTES)
        if lock is not None:
            if not told:
                os._exit(0)  # this cell is no longer needed
            contexts = bind(prepared, told + read_all(gate))[0].contexts
            for step in OWN_INPUT:  # open standard input again, now that the Landlock rules are enforced
                step()
        os.close(gate)
    link, me, kept, limit = contexts.link, os.getpid(), options.kept, 0
    while True:
        try:
            call = link.wait_for_call()
        except EOFError:
            close(loaded)
        if kept:
            limit = limit_cpu_again(options.cpu_s, limit)  # each call has its own limit
        answer(call, loaded, contexts, me)
        if not kept:
            link.wait_for_end()


def answer(call: Call, loaded: Loaded, contexts: Contexts, me: int) -> None:
    """Run the call's tool and send the answer. An answer that cannot be encoded, or is too large, becomes an error.

    `me` is the pid of the call process.
    """
    link = contexts.link
    found = perform.run(loaded, call, contexts)
    if os.getpid() != me:
        os._exit(0)  # the tool has forked, and this is a child that also returned from the tool
    perform.flush()
    try:
        link.send(found)
    except Unpackable as error:
        reason = "result" if isinstance(error, TooLarge) else "unencodable"
        link.send(Error(call.seq, reason, str(error)[:MESSAGE_CHARS], {}))
    except MemoryError:
        link.send(Error(call.seq, "result", "there is not enough memory to encode the result", {}))


def close(loaded: Loaded) -> NoReturn:
    """Tear down the tools that were set up in this process, and exit, because the session has ended."""
    failed = False
    for tool in loaded.values():
        if not isinstance(tool, LoadError):
            try:
                tool.close()
            except BaseException:  # an error of the tool; its traceback is for the supervisor's log
                traceback.print_exc()
                failed = True
    perform.flush()
    os._exit(int(failed))


def fresh_randomness() -> list[Callable[[], object]]:
    """The steps that reseed the random generators of a call process: forks of one init would all draw the same numbers.

    A generator that is not loaded yet seeds itself when a tool loads it.
    """
    steps: list[Callable[[], object]] = []
    random = sys.modules.get("random")
    if random is not None:
        steps.append(random.seed)
    for name, drawn in (("uuid", ("_last_timestamp", "_node")), ("tempfile", ("_name_sequence",))):
        module = sys.modules.get(name)
        if module is not None:
            module.__dict__.update(dict.fromkeys(drawn))  # the module draws them again if they are None
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        ssl.RAND_bytes(1)  # OpenSSL makes its generators at the first use, which takes 1 ms
        steps.append(lambda: ssl.RAND_add(os.urandom(32), 32.0))  # OpenSSL 3 notices a fork; do not rely on it
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        steps.append(numpy_random.seed)
    return steps
