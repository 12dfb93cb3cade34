"""Fixtures of all tests: both event loops, a workspace, a supervisor on small limits, and a check for leftovers."""

import gc
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from toolcell import Limits, Profile, Session, SessionKind, Supervisor
from toolcell.pool.ahead import Reserve
from toolcell.supervisor import runtime_of
from toolcell.testing.residue import Residue
from toolcell.wire.switches import OFF
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.mechanisms.mounts import make_private
from toolcell_sandbox.mechanisms.namespaces import unshare

from . import modules, zygotes
from .programs import served
from .selection import is_smoke, rank

hypothesis.settings.register_profile(
    "anywhere",
    deadline=None,
    database=None,  # the checkout may be another user's
    derandomize=True,  # a run fails for what was changed, not by chance
)
hypothesis.settings.load_profile("anywhere")
MIB = 1024 * 1024
SMALL = Limits(
    wall_s=100.0,
    cpu_s=30.0,
    memory_bytes=128 * MIB,
    processes=24,
    open_files=64,
    file_bytes=4 * MIB,
    scratch_bytes=8 * MIB,
    scratch_inodes=1024,
    result_bytes=MIB,
)
"""What a hostile tool can use up in a moment."""
SHARED = "nothing_is_left_of_the_module"


def small_profiles() -> dict[SessionKind, Profile]:
    """The presets on `SMALL` limits."""
    presets = {kind: Profile.for_kind(kind.value) for kind in SessionKind}
    return {kind: preset.replace(limits=preset.limits.narrow(SMALL)) for kind, preset in presets.items()}


ROOT = os.geteuid() == 0
NO_SETTINGS = "/var/empty/toolcell-tests"
"""A directory that does not exist, and whose absence every user can see."""
FEW = 12


def needs_root(item: pytest.Item) -> bool:
    """Whether a test is about what only root can set up: the root path, cgroups of its own, another user's view."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return item.get_closest_marker("root") is not None or "tree" in fixtures or "root" in parameters_of(item).values()


def parameters_of(item: pytest.Item) -> dict[str, object]:
    found: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Root's tests have mounts of their own: whatever is mounted on the machine, by the other worker's tests too, ends
    every cell that was made ahead, for it holds copies of what was."""
    if ROOT:
        with suppress(SandboxError):  # a root who may not mount sees mounts of others come and go
            unshare({"mount_namespace"})
            make_private()
    config.pluginmanager.register(modules)


def pytest_report_header() -> list[str]:
    who = "as root: both paths" if ROOT else "as an ordinary user: tests of what only root can set up are left out"
    plain = [f"without {', '.join(sorted(OFF))} (TOOLCELL_PLAIN): tests marked trick are left out"] if OFF else []
    return [*plain, who, f"every test runs on asyncio; of those marked few_on_trio, one in {FEW} runs on trio as well"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m smoke`, modules without a test that it takes are not even imported."""
    unwanted = config.option.markexpr == "smoke" and collection_path.match("test_*.py")
    return True if unwanted and not is_smoke(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from going through the tests, which all live until the end: during the collection of
    tests this takes a third of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out, and counts as deselected, what only root can set up where we are not, and the most on trio of modules
    in which the event loop plays no part: what ends a call is the pool, which knows none. With several workers, the
    modules that take longest come first: no worker is left alone with one at the end. Of the others, those with forked
    zygotes come first: the process that forks them is started once, not after each module without.
    """
    left_out = set() if ROOT else {item for item in items if needs_root(item)}
    if OFF:
        left_out.update(item for item in items if item.get_closest_marker("trick") is not None)
    on_trio = Counter[Path]()
    for item in items:
        if item.get_closest_marker("few_on_trio") and parameters_of(item).get("anyio_backend") == "trio":
            if on_trio[item.path] % FEW:
                left_out.add(item)
            on_trio[item.path] += 1
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        if is_smoke(item.path, getattr(item, "originalname", item.name)):
            item.add_marker("smoke")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (rank(item.path), not zygotes.are_forked(item.path)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """In a worker, report a test that passes by one event, not by six. The others would take 10 s of processor time in
    a run, most of it in the process that collects them. `--durations` needs them.
    """
    if not hasattr(item.config, "workerinput") or item.config.option.durations is not None:
        return None
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_runtest_logreport(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Write what failed, and its output, into the file that .ci/again names."""
    path = os.environ.get("TOOLCELL_TEST_FAILURES")
    if path and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        output = [report.longreprtext, *(f"-- {name}\n{text}" for name, text in report.sections)]
        with open(path, "a") as file:
            print(json.dumps([report.nodeid, "\n".join(output)]), file=file)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    pytest_runtest_logreport(report)


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Supervisors of this run keep their records apart from those of other runs and of the other worker, and no test
    reads the settings of the user who runs it.
    """
    path = tmp_path_factory.mktemp("runtime")  # 0700
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
        monkeypatch.setenv("XDG_CONFIG_HOME", NO_SETTINGS)
        yield


@pytest.fixture(scope="module", autouse=True)
def zygotes_are_forked(request: pytest.FixtureRequest, runtime_directory: None) -> Iterator[None]:
    """In folders where a zygote's start plays no part; zygotes.py says which."""
    with pytest.MonkeyPatch.context() as monkeypatch, zygotes.started_for(request.path, monkeypatch):
        yield


@pytest.fixture(scope="session", autouse=True)
def zygotes_end() -> Iterator[None]:
    yield
    zygotes.SERVER.stop()


@pytest.fixture(scope="session")
def warm(runtime_directory: None) -> Iterator[None]:
    """For modules that use `programs.run`."""
    with served():
        yield


@pytest.fixture(scope="module")
def nothing_ahead() -> Iterator[None]:
    """For modules whose sessions were seen to take no cell that was made ahead: none is made. Each takes as much
    processor time as the calls of most tests."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Reserve, "want", lambda _self, _spec: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What supervisors move to the default quarantine is the tests' own, not the user's."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(autouse=True)
def nothing_is_left(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """No test of a module that uses supervisors or pools leaves a child, a descriptor, a cgroup, a mount or a temporary
    file. For tests that share a supervisor with others of their module, `nothing_is_left_of_the_module` looks once, at
    the end.
    """
    uses_one = "supervise" in request.fixturenames or {"Supervisor", "Pool"} & vars(request.module).keys()
    if SHARED in request.fixturenames or not uses_one:
        yield
        return
    monkeypatch.setattr(tempfile, "tempdir", str(_temporary_root(tmp_path_factory)))
    before = Residue.now()
    yield
    _assert_nothing_is_beyond(before)


@pytest.fixture(scope="module")
def nothing_is_left_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For a supervisor that the tests of a module share."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(tempfile, "tempdir", str(_temporary_root(tmp_path_factory)))
        before = Residue.now()
        yield
        _assert_nothing_is_beyond(before)


def _temporary_root(factory: pytest.TempPathFactory) -> Path:
    root = factory.getbasetemp() / "temporary"  # pytest's own is shared by all who use this machine
    root.mkdir(exist_ok=True)
    return root


def _assert_nothing_is_beyond(before: Residue) -> None:
    """Threads of a test's own server, and of a client that gave up waiting, close their sockets a moment later."""
    until = time.monotonic() + 2.0
    while (left := Residue.now().beyond(before)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="module")
def open_directory() -> Iterator[Path]:
    """A directory that an ordinary user can reach. pytest's own are 0700, and each run of pytest makes them so anew."""
    with tempfile.TemporaryDirectory(prefix="toolcell-", dir="/var/tmp") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty directory to be a session's workspace."""
    path = tmp_path / "project"
    path.mkdir()
    return path


Supervise = Callable[..., Supervisor]


@pytest.fixture
def supervise() -> Supervise:
    """`async with supervise(tools=[…]) as supervisor`: a Supervisor whose presets have small limits."""

    def make(tools: Any = (), **options: Any) -> Supervisor:
        return Supervisor(tools, **({"profiles": small_profiles()} | options))

    return make


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    """What else the shared supervisor is made with; a module may have its own."""
    return {}


@pytest.fixture(scope="module")
async def shared(
    anyio_backend: str, nothing_is_left_of_the_module: None, options: dict[str, Any], request: pytest.FixtureRequest
) -> AsyncIterator[Supervisor]:
    """A supervisor for all tests of a module, with the tools of its list TOOLS. It makes no cells ahead of their
    sessions: they would come and go in tests of other supervisors, which look for what those leave behind."""
    async with Supervisor(request.module.TOOLS, **({"profiles": small_profiles()} | options)) as supervisor:
        runtime_of(supervisor).pool.reserve.enabled = False
        yield supervisor


@pytest.fixture
async def main(shared: Supervisor, workspace: Path) -> AsyncIterator[Session]:
    """A new Main session of the shared supervisor."""
    session = await shared.open_session("main", workspace=workspace)
    yield session
    await session.close()
