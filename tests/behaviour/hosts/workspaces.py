"""Calls in many workspaces, as a program: `python workspaces.py DIRECTORY`. It prints a JSON object with a key for
each.

A value is the findings of `scene.use`, or the error of opening the session.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import anyio

from toolcell import Session, Supervisor
from toolcell.errors import ToolcellError

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.behaviour.hosts.scene import TOOLS, use

NAMES = ["with space", "ünïcødé 目录", "new\nline", "quo'te\"$x`", "-dash", "a:b,c\\d", "tab\t"]


async def main(base: Path) -> dict[str, object]:
    mapped: dict[str, bool] = {}
    found: dict[str, object] = {"idmapped_mounts": mapped}
    async with Supervisor(TOOLS) as supervisor:

        async def opened(path: str | Path) -> Session:
            return await supervisor.open_session("main", workspace=path)

        async def row(name: str, path: str | Path) -> None:
            try:
                session = await opened(path)
                found[name] = await use(session)
                mapped[name] = "idmapped_mounts" in (await session.call("read", {"path": "a.txt"})).sandbox.on
            except ToolcellError as error:
                found[name] = f"{type(error).__name__}: {error}"

        for name in NAMES:
            (base / name).mkdir()
            await row(name, base / name)
        with tempfile.TemporaryDirectory(dir="/tmp") as below:
            await row("below /tmp", below)
        await row("not UTF-8", base / os.fsdecode(b"\xff"))
        for name in ("tmpfs", "noexec", "overlay", "read-only", "mount within"):
            if (base / name).exists():
                await row(name, base / name)
        for path in ("/", "/tmp", "/proc", "/proc/self", "/proc/nothing", "/sys", "/dev", "/dev/shm"):
            await row(path, path)
        deep = base
        while len(str(deep)) < 3800:
            deep /= "d" * 200
        os.makedirs(deep)
        await row("long", deep)
        (base / "link").symlink_to("with space")
        await row("link", base / "link")
        (base / "file").touch()
        await row("a file", base / "file")
        await row("nowhere", base / "no" / "where")
        foreign = base / "foreign"
        foreign.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(foreign, 4242, 4242)
            await row("another user's", foreign)
            found["owner"] = (foreign / "b.txt").stat().st_uid
        await row("moved", base / "moved")
        found |= await moving(await opened(base / "moved"))
        gone = base / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        await row("cwd deleted", base / "link")
        await row("cwd deleted, relative", "relative")
    return found


async def moving(session: Session) -> dict[str, object]:
    """Between calls, remove the workspace, then make it again, then replace it by another one."""
    path, found = session.workspace, dict[str, object]()
    await session.call("save", {"path": "a.txt", "text": "x"})
    shutil.rmtree(path)
    result = await session.call("read", {"path": "a.txt"})
    found["removed"] = result.error.message if result.error is not None else result.output
    path.mkdir()
    found["made again"] = await use(session)
    path.rename(path.with_name("old"))
    path.mkdir()
    found["replaced"] = await use(session)
    found["in the new one"] = sorted(each.name for each in path.iterdir())
    return found


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]))))
