"""deepagents' own agent, with a scripted model, whose sandbox is a session."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tests.adapters.kit import KIT, PNG
from tests.adapters.test_langchain import THREAD, Scripted, told
from tests.conftest import Supervise
from tests.helpers import until

from toolcell import Session, Supervisor, TierPolicy, UsageError
from toolcell.adapters.deepagents import SessionSandbox, workspace_tools
from toolcell.adapters.langchain import to_langchain_tools

pytestmark = pytest.mark.anyio
TOOLS = [*KIT, *workspace_tools()]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def told_of(session: Session, *turns: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    agent: Any = create_deep_agent(
        Scripted(turns=list(turns)), await to_langchain_tools(session), backend=SessionSandbox(session)
    )
    return told(await agent.ainvoke({"messages": [("user", "go")]}))


async def test_a_deep_agent_works_in_the_session_s_workspace(main: Session) -> None:
    messages = await told_of(
        main,
        [("write_file", {"file_path": f"{main.workspace}/notes/a.txt", "content": "one\ntwo\n"})],
        [("execute", {"command": f"cat {main.workspace}/notes/a.txt; pwd; exit 3"}), ("pay", {"amount": 2})],
    )
    assert (main.workspace / "notes/a.txt").read_text() == "one\ntwo\n"
    ran = str(messages["c1"].content)
    assert "two" in ran and str(main.workspace) in ran and "3" in ran
    assert messages["c2"].content == '{"paid":2}'


async def test_the_file_tools_read_search_edit_and_delete(main: Session) -> None:
    box, file = SessionSandbox(main), f"{main.workspace}/src/a.py"
    assert (await box.awrite(file, "alpha\nbeta\n")).error is None
    read = await box.aread(file)
    assert read.file_data is not None and "beta" in read.file_data["content"]
    assert [one["path"] for one in (await box.als(f"{main.workspace}/src")).entries or []] == [file]
    assert [one["line"] for one in (await box.agrep("beta")).matches or []] == [2]
    assert len((await box.aglob("**/*.py")).matches or []) == 1
    long = "x" * 200_000
    assert (await box.aedit(file, "beta", long)).occurrences == 1
    assert long in (main.workspace / "src/a.py").read_text()
    assert (await box.aedit(file, "", "y")).error
    assert (await box.adelete(file)).error is None and not (main.workspace / "src/a.py").exists()


@pytest.mark.parametrize(
    "path", ["/hello.py", "/notes/hello.py", "/etc/hello.py", "/tmp/hello.py", "/dev/shm/hello.py"]
)
async def test_a_file_is_written_where_a_command_sees_it_or_is_refused_with_the_name_of_the_workspace(
    main: Session, path: str
) -> None:
    box, here = SessionSandbox(main), f"{main.workspace}{path}"
    assert (await box.awrite(here, "print(1)")).path == here
    assert (await box.aexecute(f"python3 {here}")).output == "1\n"
    refused = await box.awrite(path, "print(1)")
    assert refused.path is None and str(main.workspace) in str(refused.error)
    (uploaded,) = await box.aupload_files([(path, b"print(1)")])
    assert str(main.workspace) in str(uploaded.error)
    assert str(main.workspace) in str((await box.aedit(path, "1", "2")).error)
    assert str(main.workspace) in str((await box.aread(path)).error)
    assert str(main.workspace) in str((await box.adelete(path)).error)
    assert (await box.aexecute(f"cat {path}")).exit_code == 1


async def test_what_a_command_can_read_the_file_tools_can_read(main: Session) -> None:
    box = SessionSandbox(main)
    seen = (await box.aexecute("cat /usr/lib/os-release")).output
    (downloaded,) = await box.adownload_files(["/usr/lib/os-release"])
    assert downloaded.content == seen.encode()
    read = await box.aread("/usr/lib/os-release")
    assert read.file_data is not None and read.file_data["content"].strip() == seen.strip()
    assert "/usr" in [one["path"] for one in (await box.als("/")).entries or []]


async def test_deepagents_keeps_its_own_files_in_the_workspace_where_a_command_sees_them(main: Session) -> None:
    place = f"{main.workspace}/.deepagents"
    box = CompositeBackend(default=SessionSandbox(main), routes={}, artifacts_root=place)
    agent: Any = create_deep_agent(Scripted(turns=[[("execute", {"command": "seq 40000"})]]), backend=box)
    messages = told(await agent.ainvoke({"messages": [("user", "go")]}))
    assert f"{place}/large_tool_results/c1" in str(messages["c1"].content)
    seen = await SessionSandbox(main).aexecute(f"tail -n 3 {place}/large_tool_results/c1")
    assert "40000" in seen.output


async def test_files_go_up_and_down_byte_for_byte_and_errors_have_their_names(main: Session) -> None:
    box, data, root = SessionSandbox(main), bytes(range(256)) * 1000, main.workspace
    up = await box.aupload_files([(f"{root}/deep/er/x.bin", data), ("relative", b"")])
    assert [one.error for one in up] == [None, "invalid_path"]
    down = await box.adownload_files([f"{root}/deep/er/x.bin", "/nothing", f"{root}/deep", "relative"])
    assert down[0].content == data
    assert [one.error for one in down[1:]] == ["file_not_found", "is_directory", "invalid_path"]


async def test_nothing_outside_of_the_workspace_can_be_written(main: Session, tmp_path: Path) -> None:
    box = SessionSandbox(main)
    ran = await box.aexecute(f"echo x > {tmp_path}/out || echo x > /etc/x || echo refused")
    assert ran.output.endswith("refused\n") and not (tmp_path / "out").exists()
    (up,) = await box.aupload_files([(f"{main.workspace}/../out", b"x")])
    assert str(main.workspace) in str(up.error)
    assert not (tmp_path / "out").exists()


async def test_a_command_ends_at_its_timeout_and_a_long_output_is_cut(main: Session) -> None:
    box = SessionSandbox(main)
    ended = await box.aexecute("sleep 20", timeout=1)
    assert ended.exit_code == 124 and "timeout" in ended.output
    long = await box.aexecute("head -c 2000000 /dev/zero | tr '\\0' x")
    assert long.truncated and len(long.output) == 1024 * 1024


async def test_a_worker_reads_and_neither_writes_nor_runs_commands(main: Session) -> None:
    (main.workspace / "a").write_text("b")
    box = SessionSandbox(await main.open_child("worker"))
    assert (await box.adownload_files([f"{main.workspace}/a"]))[0].content == b"b"
    assert (await box.aupload_files([(f"{main.workspace}/c", b"")]))[0].error == "permission_denied"
    ran = await box.aexecute("ls")
    assert ran.exit_code == 1 and "permission_denied" in ran.output


async def test_the_file_tools_of_a_worker_s_agent_read_and_search(main: Session) -> None:
    (main.workspace / "src").mkdir()
    (main.workspace / "src/a.py").write_text("alpha\nbeta\ngamma\n")
    (main.workspace / "b.png").write_bytes(PNG)
    worker = await main.open_child("worker")

    async def said(name: str, **arguments: Any) -> tuple[str, str]:
        message = (await told_of(worker, [(name, arguments)]))["c1"]
        return message.status, str(message.content)

    root = str(main.workspace)
    listed = await said("ls", path=root)
    assert f"{root}/src" in listed[1] and f"{root}/b.png" in listed[1]
    status, lines = await said("read_file", file_path=f"{root}/src/a.py", offset=1, limit=1)
    assert status == "success" and "beta" in lines and "alpha" not in lines and "gamma" not in lines
    assert "src/a.py" in (await said("glob", pattern="*.py"))[1]
    assert "alpha" in (await said("grep", pattern="alpha", path=f"{root}/src", glob="*.py", output_mode="content"))[1]
    assert "image/png" in (await said("read_file", file_path=f"{root}/b.png"))[1]
    for name, place in (("read_file", {"file_path": f"{root}/none"}), ("ls", {"path": f"{root}/none"})):
        assert "none" in (await said(name, **place))[1]
    assert "permission_denied" in (await said("write_file", file_path=f"{root}/c", content=""))[1]
    assert not (main.workspace / "c").exists()
    box = SessionSandbox(worker)
    found = await anyio.to_thread.run_sync(box.grep, "a", f"{root}/src/a.py")
    assert [one["line"] for one in found.matches or []] == [1, 2, 3] and not found.truncated
    (main.workspace / "long").write_text("a line\n" * 1_000_000 + "the end")
    last = await box.aread(f"{root}/long", 1_000_000, 5)
    assert last.file_data is not None and last.file_data["content"] == "the end"
    assert (last.start_line, last.total_lines, last.next_offset) == (1_000_001, 1_000_001, None)
    assert (await box.aread(f"{root}/long", 0, 2)).next_offset == 2 and (
        await box.aread(f"{root}/long", 0, 0)
    ).no_lines_requested
    assert "exceeds" in str((await box.aread(f"{root}/long", 2_000_000, 5)).error)
    assert (await box.agrep("a", max_count=2)).truncated and (await box.aglob("*.py", f"{root}/none")).error


async def test_without_await_it_works_in_another_thread_and_refuses_to_block_the_loop(main: Session) -> None:
    box = SessionSandbox(main)
    assert box.id == main.id
    assert (await anyio.to_thread.run_sync(box.execute, "echo hi")).output == "hi\n"
    with pytest.raises(UsageError, match="ainvoke"):
        box.execute("echo hi")


async def test_errors_pictures_and_parallel_calls_are_those_of_langchain_s_tools(main: Session) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("fail", {"why": "rain"}), ("crash", {}), ("picture", {}), ("meet", {}), ("meet", {}), ("call_id", {})
    ]  # fmt: skip
    messages = await told_of(main, calls)
    assert messages["c1"].status == messages["c2"].status == "error" and "rain" in str(messages["c1"].content)
    assert messages["c3"].artifact.content[0].to_bytes() == PNG
    assert messages["c4"].artifact.output == messages["c5"].artifact.output == "met"
    assert messages["c6"].content == "c6"


async def test_progress_of_a_tool_is_in_the_custom_stream(main: Session) -> None:
    tools = await to_langchain_tools(main)
    agent: Any = create_deep_agent(Scripted(turns=[[("steps", {"number": 1})]]), tools, backend=SessionSandbox(main))
    said = [one async for one in agent.astream({"messages": [("user", "go")]}, stream_mode="custom")]
    assert [one["toolcell_progress"]["message"] for one in said] == ["step 0"]


async def test_a_cancelled_run_ends_the_command_in_its_cell(main: Session, shared: Supervisor, workspace: Path) -> None:
    agent: Any = create_deep_agent(
        Scripted(turns=[[("execute", {"command": "touch running; sleep 60"})]]), backend=SessionSandbox(main)
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.ainvoke, {"messages": [("user", "go")]})
        await until(lambda: (workspace / "running").exists())
        tasks.cancel_scope.cancel()
    await until(lambda: "busy" not in repr(shared))


async def test_a_picture_of_the_workspace_is_read_as_a_content_block(main: Session) -> None:
    (main.workspace / "dot.png").write_bytes(PNG)
    message = (await told_of(main, [("read_file", {"file_path": f"{main.workspace}/dot.png"})]))["c1"]
    assert [one["type"] for one in message.content_blocks] == ["image"]


@pytest.mark.parametrize(
    ("decision", "word"), [({"type": "approve"}, "ran"), ({"type": "reject", "message": "not today"}, "not today")]
)
async def test_a_command_that_needs_approval_interrupts_the_agent(
    supervise: Supervise, workspace: Path, decision: dict[str, str], word: str
) -> None:
    async with supervise(workspace_tools(), policy=TierPolicy(system="ask")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        agent: Any = create_deep_agent(
            Scripted(turns=[[("execute", {"command": "echo ran"})]]),
            backend=SessionSandbox(session),
            checkpointer=InMemorySaver(),
        )
        state = await agent.ainvoke({"messages": [("user", "go")]}, THREAD)
        (pause,) = state["__interrupt__"]
        assert pause.value["toolcell"]["tool"] == "workspace_run"
        state = await agent.ainvoke(Command(resume={"decisions": [decision]}), THREAD)
        assert word in told(state)["c1"].content
