"""A hook of mkdocs: pages that lie beside the code are part of the site too, and links to them lead there.

In the repository, `docs/security.md` links to `../sandbox/README.md`, so that both work for a reader of the files. A
link to a file of the repository that the site does not have, a module say, becomes its text.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
SHOWN = {
    "executor/README.md": "design/runtime.md",
    "sandbox/README.md": "design/sandbox.md",
    "tools/README.md": "design/tools.md",
    "tools/SEEDS.md": "design/seeds.md",
    "benchmarks/README.md": "design/benchmarks.md",
    "benchmarks/RESULTS.md": "design/benchmark-results.md",
    "tests/escape/README.md": "design/escape.md",
    "examples/docker/README.md": "project/docker.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    **{str(plot.relative_to(ROOT)): f"plots/{plot.name}" for plot in sorted((ROOT / "benchmarks/plots").glob("*.svg"))},
}
_SOURCES = {there: here for here, there in SHOWN.items()}
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures that lie outside of docs/."""
    for here, there in SHOWN.items():
        files.append(File.generated(config, there, content=(ROOT / here).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that hold in the repository into links that hold on the site."""
    there = page.file.src_uri
    here = _SOURCES.get(there, f"docs/{there}")

    def led(found: re.Match[str]) -> str:
        target = found["target"]
        if not target or "://" in target:
            return found[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        shown = SHOWN.get(place, place.removeprefix("docs/") if place.startswith("docs/") else "")
        if not shown and (ROOT / place).exists():
            return found["text"]
        to = posixpath.relpath(shown or target, posixpath.dirname(there) or ".")
        return f"{found['image']}[{found['text']}]({to}{found['anchor'] or ''})"

    return _LINK.sub(led, markdown)
