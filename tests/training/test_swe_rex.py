"""SWE-ReX's own runtime interface and its models, over cells of a session."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)
from tests.adapters.kit import elsewhere
from tests.helpers import PATIENCE_S

from toolcell import Session
from toolcell.adapters.swe_rex import CellRuntime, swe_rex_tools

pytestmark = pytest.mark.anyio
TOOLS = swe_rex_tools()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def runtime(main: Session) -> AsyncIterator[AbstractRuntime]:
    made = CellRuntime(main)
    await made.create_session(CreateBashSessionRequest())
    yield made
    await made.close()


async def said(runtime: AbstractRuntime, command: str, **options: object) -> str:
    given = {"command": command, "timeout": PATIENCE_S, **options}
    return (await runtime.run_in_session(BashAction.model_validate(given))).output


async def test_a_shell_keeps_its_directory_variables_functions_and_jobs(runtime: AbstractRuntime) -> None:
    await said(runtime, "mkdir -p sub; cd sub; export A='it''s'; f() { echo \"f $1\"; }\nsleep 50 &")
    assert (await said(runtime, 'basename "$PWD"; echo $A; f 1; jobs -r | wc -l')).split() == [
        "sub", "its", "f", "1", "1",
    ]  # fmt: skip


async def test_commands_of_several_lines_and_here_documents_run(runtime: AbstractRuntime) -> None:
    assert await said(runtime, "cat <<'END'\nit's $HOME\nEND\necho two") == "it's $HOME\ntwo\n"
    assert await said(runtime, "cat") == ""  # its input is empty
    assert await said(runtime, "echo out; echo err >&2") == "out\nerr\n"


async def test_an_exit_code_is_raised_told_or_left_out(runtime: AbstractRuntime) -> None:
    with pytest.raises(NonZeroExitCodeError, match=r"do it: .*exit code 3"):
        await said(runtime, "echo no; (exit 3)", error_msg="do it")
    action = BashAction(command="(exit 3)", check="silent")
    assert (await runtime.run_in_session(action)).exit_code == 3
    assert (await runtime.run_in_session(action.model_copy(update={"check": "ignore"}))).exit_code is None


async def test_wrong_syntax_is_told_and_the_shell_goes_on(runtime: AbstractRuntime) -> None:
    with pytest.raises(BashIncorrectSyntaxError) as raised:
        await said(runtime, "echo 'open")
    assert "unexpected EOF" in raised.value.extra_info["bash_stderr"]
    assert await said(runtime, "echo on") == "on\n"


async def test_a_command_that_takes_too_long_can_be_interrupted(runtime: AbstractRuntime) -> None:
    with anyio.fail_after(PATIENCE_S):
        with pytest.raises(CommandTimeoutError):
            await said(runtime, "echo begun; sleep 60", timeout=0.3)
        await runtime.run_in_session(BashInterruptAction(timeout=PATIENCE_S))
        assert await said(runtime, "echo on") == "on\n"
        with pytest.raises(CommandTimeoutError):
            await said(runtime, "python3 -c 'import signal,time; signal.signal(2, 1); time.sleep(60)'", timeout=0.3)
        await runtime.run_in_session(BashInterruptAction(timeout=0.2))  # it ignores the signal, and is killed
        assert await said(runtime, "echo on") == "on\n"


async def test_an_interactive_program_is_spoken_to(runtime: AbstractRuntime) -> None:
    start = BashAction(command="python3 -iq 2>&1", is_interactive_command=True, expect=[">>> "], timeout=PATIENCE_S)
    assert (await runtime.run_in_session(start)).expect_string == ">>> "
    asked = await runtime.run_in_session(start.model_copy(update={"command": "6 * 7"}))
    assert "42" in asked.output
    stop = BashAction(command="exit()", is_interactive_quit=True, timeout=PATIENCE_S)
    await runtime.run_in_session(stop)
    assert await said(runtime, "echo on") == "on\n"


async def test_shells_have_names(runtime: AbstractRuntime, main: Session) -> None:
    (main.workspace / "env.sh").write_text("B=2; echo sourced")
    request = CreateBashSessionRequest(session="other", startup_source=[str(main.workspace / "env.sh")])
    assert (await runtime.create_session(request)).output == "sourced\n"
    with pytest.raises(SessionExistsError):
        await runtime.create_session(request)
    assert await said(runtime, "echo $B", session="other") == "2\n"
    assert await said(runtime, "echo $B") == "\n"
    await runtime.close_session(CloseBashSessionRequest(session="other"))
    for again in (runtime.close_session(CloseBashSessionRequest(session="other")), said(runtime, "", session="other")):
        with pytest.raises(SessionDoesNotExistError):
            await again


async def test_a_shell_that_exits_is_told(runtime: AbstractRuntime) -> None:
    with pytest.raises(NoExitCodeError, match="exit code 4"):
        await said(runtime, "exit 4")


async def test_long_output_is_cut_in_the_middle(runtime: AbstractRuntime) -> None:
    output = await said(runtime, "echo first; seq 400000; echo last", timeout=PATIENCE_S)
    assert output.startswith("first\n1\n") and output.endswith("400000\nlast\n") and len(output) < 250_000
    assert "bytes …]" in output


async def test_a_program_runs_as_subprocess_run_does(runtime: AbstractRuntime, main: Session) -> None:
    ran = await runtime.execute(Command(command=["sh", "-c", "echo a; echo b >&2; exit 3"]))
    assert (ran.stdout, ran.stderr, ran.exit_code) == ("a\n", "b\n", 3)
    merged = Command(command="echo a; echo b >&2", shell=True, merge_output_streams=True)
    assert (await runtime.execute(merged)).stdout == "a\nb\n"
    env = await runtime.execute(Command(command=["env"], env={"A": "x y"}, cwd="/tmp"))
    assert "A=x y" in env.stdout and "HOME=" not in env.stdout
    assert (await runtime.execute(Command(command="pwd", cwd="/tmp"))).stdout == "/tmp\n"
    text = f": {'x' * 1_000_000}; [[ $A == 'x y' ]] && pwd"  # bash's, and longer than an argument may be
    long = Command(command=text, shell=True, env={"A": "x y"}, cwd="/tmp")
    assert (await runtime.execute(long)).stdout == "/tmp\n"
    with pytest.raises(NonZeroExitCodeError):
        await runtime.execute(Command(command=["false"], check=True))
    with pytest.raises(CommandTimeoutError):
        await runtime.execute(Command(command=["sleep", "60"], timeout=0.3))


async def test_a_file_where_no_command_would_see_it_is_refused_with_the_name_of_the_workspace(
    runtime: AbstractRuntime, main: Session
) -> None:
    with pytest.raises(OSError, match=f"would not last.*{main.workspace}"):
        await runtime.write_file(WriteFileRequest(path="/tmp/a.txt", content=""))


async def test_commands_run_from_another_event_loop(runtime: AbstractRuntime) -> None:
    ran = await elsewhere(lambda: runtime.execute(Command(command=["echo", "hi"])))
    assert ran.stdout == "hi\n"


async def test_files_go_there_and_back(runtime: AbstractRuntime, tmp_path: Path) -> None:
    await runtime.write_file(WriteFileRequest(path="deep/a.txt", content="größe"))
    assert (await runtime.read_file(ReadFileRequest(path="deep/a.txt"))).content == "größe"
    with pytest.raises(FileNotFoundError):
        await runtime.read_file(ReadFileRequest(path="none"))
    with pytest.raises(OSError):
        await runtime.write_file(WriteFileRequest(path="/etc/none", content=""))
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/b.bin").write_bytes(b"\xff\x00")
    await runtime.upload(UploadRequest(source_path=str(tmp_path / "tree"), target_path="copied"))
    assert await said(runtime, "od -An -tx1 copied/sub/b.bin") == " ff 00\n"
    assert (await runtime.read_file(ReadFileRequest(path="copied/sub/b.bin", errors="replace"))).content == "\ufffd\0"


async def test_a_closed_session_is_not_alive(runtime: AbstractRuntime, main: Session) -> None:
    assert await runtime.is_alive(timeout=PATIENCE_S)
    await main.close()
    alive = await runtime.is_alive()
    assert not alive and "is closed" in alive.message
