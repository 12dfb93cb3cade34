"""The code in tools/README.md runs, each block as a program of its own; every option is in its table."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolcell_tools import ToolOptions

README = (Path(__file__).parent.parent.parent / "tools" / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "block", BLOCKS, ids=lambda block: re.findall(r"^(?:class|def|async def|\w+) ?(\w+)", block)[-1]
)
def test_every_block_runs(block: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(block)
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_option_is_in_the_table() -> None:
    table = README[README.index("## Options") : README.index("## Known as")]
    named = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE))))
    assert named == {*ToolOptions.__annotations__, "success", "validate"}
