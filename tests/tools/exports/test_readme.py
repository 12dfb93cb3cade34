"""The example of the README's section on exports runs."""

import re
from pathlib import Path

README = Path(__file__).parent.parent.parent.parent / "tools" / "README.md"


def test_the_example_runs_and_prints_findings() -> None:
    section = README.read_text().partition("\n## Exports\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    said: list[object] = []
    exec(compile(block, "README.md", "exec"), {"print": said.append})
    assert any("old_text" in str(one) for one in said)
