"""Workspaces that are sent to their nodes, whose directories are apart from the driver's and from each other's."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
import ray
from tests.cluster.conftest import LEASE_S, RayNodes
from tests.conftest import Supervise
from tests.helpers import PATIENCE_S

from toolcell import Capability, RecentJournal, Session, Supervisor, ToolContext, UsageError, base_tools, tool
from toolcell.cluster import RayCluster, SentWorkspaces, WorkspaceTooLarge
from toolcell.rollouts import Attempt, rollout

pytestmark = pytest.mark.anyio


@tool(needs={Capability.READ})
def where(ctx: ToolContext) -> str:
    """Where the call works."""
    return str(ctx.workspace_root)


@tool(needs={Capability.WRITE})
def plant(ctx: ToolContext) -> str:
    """Make a git hook by hand, links that lead out, and files that no other machine should have."""
    import os

    top = ctx.workspace_root
    (top / ".git" / "hooks").mkdir(parents=True)
    (top / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    (top / "out").symlink_to("/etc/passwd")
    os.mkfifo(top / "fifo")
    (top / "tool").write_text("x")
    (top / "tool").chmod(0o777)
    (top / "readme.md").write_text("theirs")
    return "planted"


TOOLS = [where, plant, *base_tools()]


def cluster(directory: Path, **options: Any) -> RayCluster:
    """A cluster whose nodes keep their files below a directory of the test."""
    sent = SentWorkspaces(**{"directory": str(directory / "nodes"), **options})
    return RayCluster(namespace=f"sent-{directory.name}", lease_s=LEASE_S, min_nodes=2, workspaces=sent)


@pytest.fixture(scope="module")
def nodes_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sent")


@pytest.fixture(scope="module")
async def journal() -> RecentJournal:
    return RecentJournal(10_000)


@pytest.fixture(scope="module")
def options(ray_nodes: RayNodes, nodes_directory: Path, journal: RecentJournal) -> dict[str, Any]:
    return {"cluster": cluster(nodes_directory, max_bytes=50_000_000), "journal": journal}


@pytest.fixture(scope="module", autouse=True)
async def without_nodes_of_this_module(shared: Supervisor, options: dict[str, Any]) -> AsyncIterator[None]:
    yield
    await options["cluster"].remove()


@pytest.fixture
async def other(ray_nodes: RayNodes, tmp_path: Path) -> AsyncIterator[dict[str, RayCluster]]:
    """Clusters of a test's own, by a name, removed at its end."""
    made: dict[str, RayCluster] = {}
    yield made
    for each in made.values():
        await each.remove()


async def shell(session: Session, command: str) -> str:
    result = await session.call("shell", {"command": command})
    output = result.unwrap()
    assert output["exit_code"] == 0, result
    return str(output["stdout"])


def events(journal: RecentJournal, session: Session, event: str) -> list[dict[str, Any]]:
    """What the journal says of this event of a session."""
    mine = [dict(each.data) for each in journal if each.kind == "session" and each.session_id == session.id]
    return [each for each in mine if each["event"] == event]


async def test_a_session_works_in_a_copy_and_its_changes_come_back(
    shared: Supervisor, nodes_directory: Path, workspace: Path
) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "a.txt").write_text("one\n")
    (workspace / "gone.txt").write_text("x")
    (workspace / "link").symlink_to("src/a.txt")
    session = await shared.open_session("main", workspace=workspace)
    place = Path((await session.call("where")).unwrap())
    assert place.is_relative_to(nodes_directory)
    change = "cat link; echo two >> src/a.txt; rm gone.txt; echo new > new.txt; chmod +x new.txt"
    assert await shell(session, change) == "one\n"
    assert (workspace / "src" / "a.txt").read_text() == "one\n"
    returned = (await session.close()).returned
    assert returned is not None
    assert (returned.created, returned.changed, returned.deleted) == (("new.txt",), ("src/a.txt",), ("gone.txt",))
    assert (workspace / "src" / "a.txt").read_text() == "one\ntwo\n"
    assert not (workspace / "gone.txt").exists()
    assert os.access(workspace / "new.txt", os.X_OK)
    assert not place.exists()


async def test_a_content_is_sent_to_a_node_once_and_a_large_one_by_the_object_store(
    shared: Supervisor, journal: RecentJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[int] = []
    store = ray.put

    def counted(value: bytes) -> Any:
        stored.append(len(value))
        return store(value)

    monkeypatch.setattr(ray, "put", counted)
    large = os.urandom(9_000_000)
    sent: list[dict[str, Any]] = []
    for number in range(4):  # at least two of them are on one node
        workspace = tmp_path / f"w{number}"
        workspace.mkdir()
        (workspace / "large").write_bytes(large)
        (workspace / "own").write_text(str(number))
        session = await shared.open_session("main", workspace=workspace)
        assert (await shell(session, "wc -c < large; cat own")).split() == ["9000000", str(number)]
        sent += events(journal, session, "sent")
        await session.close()
    first = {each["node"]: each for each in reversed(sent)}
    for each in sent:
        if each is first[each["node"]]:
            assert (each["sent_contents"], each["sent_bytes"] > 9_000_000) == (3, True)  # with the manifest
        else:
            assert (each["sent_contents"], each["sent_bytes"] < 1_000) == (2, True)
    assert min(stored) > 100_000
    assert len(stored) == 3 * len(first)  # pieces of 4 MiB


async def test_a_child_works_in_the_copy_of_its_parent(shared: Supervisor, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    main = await shared.open_session("main", workspace=workspace)
    child = await main.open_child("branch", workspace=workspace / "sub")
    await shell(child, "echo from the child > note")
    assert await shell(main, "cat sub/note") == "from the child\n"
    assert (await child.call("where")).unwrap() == (await main.call("where")).unwrap() + "/sub"
    assert (await child.close()).returned is None
    returned = (await main.close()).returned
    assert returned is not None
    assert returned.created == ("sub/note",)


async def test_changes_come_back_on_demand_and_only_once(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace)
    assert not await session.bring_back()  # nothing was sent yet
    await shell(session, "echo 1 > a; echo 1 > b")
    assert (await session.bring_back()).created == ("a", "b")
    assert (workspace / "a").read_text() == "1\n"
    assert not await session.bring_back()
    await shell(session, "echo 2 > a; rm b")
    returned = await session.bring_back()
    assert (returned.changed, returned.deleted) == (("a",), ("b",))
    await shell(session, "echo 3 > a")
    await session.suspend()
    assert (workspace / "a").read_text() == "3\n"
    await session.resume()
    assert await shell(session, "cat a") == "3\n"
    await session.close()


async def test_sessions_that_are_open_at_the_end_of_the_supervisor_bring_their_changes_back(
    supervise: Supervise, options: dict[str, Any], workspace: Path
) -> None:
    async with supervise(TOOLS, cluster=options["cluster"]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await shell(session, "echo 1 > a")
    assert (workspace / "a").read_text() == "1\n"


async def test_a_file_that_has_changed_here_meanwhile_is_a_conflict(
    shared: Supervisor, journal: RecentJournal, workspace: Path
) -> None:
    (workspace / "a").write_text("base\n")
    (workspace / "b").write_text("base\n")
    session = await shared.open_session("main", workspace=workspace)
    await shell(session, "echo theirs > a; echo theirs > b; echo theirs > new")
    (workspace / "a").write_text("ours\n")
    (workspace / "new").write_text("ours\n")
    returned = (await session.close()).returned
    assert returned is not None
    assert [(each.path, each.kept, each.base is None) for each in returned.conflicts] == [
        ("a", "ours", False),
        ("new", "ours", True),
    ]
    assert {name: (workspace / name).read_text() for name in ("a", "b", "new")} == {
        "a": "ours\n",
        "b": "theirs\n",
        "new": "ours\n",
    }
    assert events(journal, session, "returned")[0]["conflicts"] == ["a", "new"]


async def test_a_hostile_copy_brings_nothing_hostile_back(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace)
    result = await session.call("plant")
    assert result.output == "planted"
    assert [notice.kind for notice in result.notices if notice.kind == "protected_name"] == ["protected_name"]
    assert str(workspace) not in result.for_model()
    assert "nodes" not in "".join(notice.message for notice in result.notices)
    returned = (await session.close()).returned
    assert returned is not None
    assert returned.created == ("readme.md", "tool")
    why = {each.path: each.why for each in returned.left_out}
    assert set(why) == {".git/hooks", "fifo", "out"}, why
    assert sorted(os.listdir(workspace)) == [".git", "readme.md", "tool"]
    assert os.listdir(workspace / ".git") == []
    assert (workspace / "tool").stat().st_mode & 0o7777 == 0o755


async def test_a_long_output_can_be_read_in_the_copy(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace)
    result = await session.call("shell", {"command": "seq 100000"})
    (artifact,) = [each for each in result.artifacts if each.path.startswith(".toolcell/")]
    assert await shell(session, f"tail -n 1 {artifact.path}") == "100000\n"
    await session.close()


async def test_a_directory_over_the_bounds_opens_no_session(shared: Supervisor, workspace: Path) -> None:
    (workspace / "data").mkdir()
    with (workspace / "data" / "large.bin").open("wb") as file:
        file.truncate(60_000_000)
    with pytest.raises(WorkspaceTooLarge, match=r"data/large\.bin.*exclude=\['/data/large\.bin'\]"):
        await shared.open_session("main", workspace=workspace, session_id="large")
    (workspace / "data" / "large.bin").unlink()
    session = await shared.open_session("main", workspace=workspace, session_id="large")
    await session.close()


async def test_a_session_reopens_on_another_node_and_says_what_is_lost(
    supervise: Supervise, other: dict[str, RayCluster], tmp_path: Path, workspace: Path
) -> None:
    made = other["lost"] = cluster(tmp_path)
    journal = RecentJournal()
    (workspace / "a").write_text("base\n")
    async with supervise(TOOLS, cluster=made, journal=journal) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await shell(session, "echo kept > kept")
        await session.bring_back()
        await shell(session, "echo lost > a")
        (await supervisor_of(session)).kill()
        with anyio.fail_after(PATIENCE_S):
            while (result := await session.call("shell", {"command": "cat a kept"})).error is not None:
                assert result.error.kind == "node_lost"
                await anyio.sleep(0.1)
        assert result.output["stdout"] == "base\nkept\n"
        (notice,) = result.notices
        assert notice.kind == "state_lost"
        assert "2 calls" in notice.message
        assert not (await session.call("shell", {"command": "true"})).notices
        returned = (await session.close()).returned
    assert returned is not None
    assert "was lost" in returned.unknown
    assert events(journal, session, "files_lost") == [{"event": "files_lost", "calls": 2}]


async def test_the_close_reports_a_node_that_was_lost_before_the_files_came_back(
    supervise: Supervise, other: dict[str, RayCluster], tmp_path: Path, workspace: Path
) -> None:
    made = other["gone"] = cluster(tmp_path)
    async with supervise(TOOLS, cluster=made) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await shell(session, "echo lost > a")
        (await supervisor_of(session)).kill()
        with anyio.fail_after(PATIENCE_S):
            returned = (await session.close()).returned
    assert returned is not None
    assert "was lost" in returned.unknown
    assert os.listdir(workspace) == []


async def supervisor_of(session: Session) -> psutil.Process:
    """The process of the node supervisor that has the session's copy: it holds the lock of its directory."""
    place = Path((await session.call("where")).unwrap())
    lock = os.path.realpath(place.parents[2] / "lock")
    return next(each for each in psutil.process_iter() if lock in _open_files(each))


def _open_files(process: psutil.Process) -> set[str]:
    try:
        return {each.path for each in process.open_files()}
    except psutil.Error:  # it has ended
        return set()


async def test_attempts_begin_from_one_base_that_is_sent_once(
    supervise: Supervise, other: dict[str, RayCluster], tmp_path: Path
) -> None:
    base = tmp_path / "base"
    (base / "lib").mkdir(parents=True)
    (base / "lib" / "big").write_bytes(os.urandom(3_000_000))
    (base / "task.txt").write_text("base\n")
    made = other["base"] = cluster(tmp_path, base=base)
    journal = RecentJournal()

    async def agent(attempt: Attempt) -> str:
        command = f"wc -c < lib/big; echo {attempt.number} >> task.txt"
        return str((await attempt.call("shell", {"command": command})).unwrap()["stdout"]).strip()

    async with (
        supervise(TOOLS, cluster=made, journal=journal) as supervisor,
        rollout(range(2), agent, supervisor=supervisor, workspace=tmp_path / "runs", attempts=4) as trajectories,
    ):
        ends = [each async for each in trajectories]
    assert [each.output for each in ends] == ["3000000"] * 8
    for each in ends:
        assert os.listdir(each.workspace) == ["task.txt"]
        assert Path(each.workspace, "task.txt").read_text() == f"base\n{each.number}\n"
    assert (base / "task.txt").read_text() == "base\n"
    sent = [each.data for each in journal if each.kind == "session" and each.data["event"] == "sent"]
    assert len(sent) == 8
    assert sum(each["sent_bytes"] > 3_000_000 for each in sent) == len({each["node"] for each in sent}) == 2


async def test_a_store_that_is_too_small_evicts_and_one_that_cannot_hold_a_workspace_says_so(
    supervise: Supervise, other: dict[str, RayCluster], tmp_path: Path
) -> None:
    made = other["small"] = cluster(tmp_path, store_bytes=2_500_000)
    async with supervise(TOOLS, cluster=made) as supervisor:
        for number in range(4):  # of 1 MB each, on two nodes
            workspace = tmp_path / f"w{number}"
            workspace.mkdir()
            (workspace / "data").write_bytes(os.urandom(1_000_000))
            session = await supervisor.open_session("main", workspace=workspace)
            assert await shell(session, "wc -c < data") == "1000000\n"
            await session.close()
        kept = sum(path.stat().st_size for path in (tmp_path / "nodes").glob("*/store/*/*"))
        assert 1_000_000 < kept < 5_000_000
        (workspace / "more").write_bytes(os.urandom(2_000_000))
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("where")
        assert result.error is not None
        assert (result.error.kind, result.error.outcome) == ("node_lost", "not started")
        assert "holds at most 2,500,000. Raise store_bytes" in result.error.message
        await session.close()


async def test_the_blocking_api_and_a_supervisor_without_a_cluster_have_nothing_to_bring(workspace: Path) -> None:
    from toolcell import blocking

    def work() -> None:
        with blocking.Supervisor(base_tools()) as supervisor:
            session = supervisor.open_session("main", workspace=workspace)
            session.call("write", {"path": "a", "content": "x"})
            assert not session.bring_back()
            assert session.close().returned is None

    await anyio.to_thread.run_sync(work)


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="conflicts"):
        SentWorkspaces(conflicts="mine")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_bytes"):
        SentWorkspaces(max_bytes=0)
    with pytest.raises(UsageError, match="workspaces"):
        RayCluster(workspaces="send")  # type: ignore[arg-type]
