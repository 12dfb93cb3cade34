"""The code of the design pages runs: results and testing in tools/README.md, metrics in executor/README.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def blocks(page: str, section: str) -> list[str]:
    """The Python blocks of one section of a page."""
    _, _, after = (ROOT / page).read_text().partition(f"\n## {section}\n")
    found = re.findall(r"^```python\n(.*?)^```", after.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no code in a section {section!r}"
    return found


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("page", "section", "says"),
    [
        ("tools/README.md", "Results", '{"points":2}\n[image, image/png, 2 bytes]\n'),
        ("executor/README.md", "Metrics", "67%, half of the calls within 0."),
    ],
)
def test_the_code_of_a_section_runs(page: str, section: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("\n".join(blocks(page, section)))
    assert run(tmp_path, "script.py").startswith(says)


def test_the_tests_that_are_shown_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those that count here, whatever else is installed
    plugins = ("-p", "anyio.pytest_plugin", "-p", "toolcell.testing.plugin")
    tool, *_ = blocks("tools/README.md", "A tool in five lines")
    shown = blocks("tools/README.md", "Testing a tool")
    (tmp_path / "test_shown.py").write_text("\n".join([tool, *shown]))
    said = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, "test_shown.py")
    assert f"{sum(block.count('def test_') for block in shown)} passed" in said


def test_the_first_test_that_is_shown_has_three_lines() -> None:
    _, _, body = blocks("tools/README.md", "Testing a tool")[0].partition("def test_save() -> None:\n")
    assert len(body.splitlines()) == 3
