"""The pages of the documentation, and what their fenced blocks are: programs, tests, settings, commands, output.

A block is what its language says. An HTML comment in the line before it says more:

    <!-- setup: session -->    a fragment; it follows the program of that name in tests/docs/setups/
    <!-- continues -->         it follows the block before it on the page, in one program
    <!-- pytest -->            it is a part of the page's test file
    <!-- extra: langchain -->  a program that needs this extra, and a `model`, which tests/adapters/models has
    <!-- exit: 2 -->           a console block's command ends with this status
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SETUPS = Path(__file__).resolve().parent / "setups"
DESIGN = ("executor/README.md", "sandbox/README.md", "tools/README.md", "benchmarks/README.md")
_DOCS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", *DESIGN, *_DOCS)
FRAMEWORKS = ("adk", "deepagents", "fastmcp", "langchain", "llama-index", "openai-agents", "pydantic-ai", "smolagents")
"""The extras whose programs `tests/adapters/docs/test_documents.py` runs."""
EXTRAS = (*FRAMEWORKS, "ray")
"""With that whose programs `tests/cluster/docs/test_documents.py` runs."""
TRAINING = ("skyrl", "swe-rex", "verl")
"""The frameworks whose programs `tests/training/docs/test_documents.py` runs. They need no model."""
MODELS = ROOT / "tests/adapters/models"
"""What defines each framework's scripted `model`."""
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[a-z]+)(?:: (?P<value>\S+))? -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its fence, its language, and the comment before it, split in two."""

    page: str
    line: int
    language: str
    text: str
    mark: str
    value: str


@dataclass(frozen=True)
class Program:
    """A Python program of a page: one block, or several that continue one another. `says` is the output that it shows,
    and `extra` the extra that it needs."""

    page: str
    line: int
    text: str
    says: str | None
    extra: str

    @property
    def name(self) -> str:
        return f"{re.sub(r'[^a-z]+', '_', self.page.removesuffix('.md').lower())}_{self.line}"


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = (ROOT / page).read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            found["mark"] or "",
            found["value"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def programs(page: str, extra: str = "") -> list[Program]:
    """The Python programs of a page, but those that are tests: those that need this extra, or none."""
    made: list[Program] = []
    before = ""
    for block in blocks(page):
        if block.language == "output" and before == "python":
            made[-1] = replace(made[-1], says=block.text)
        elif block.language == "python" and block.mark != "pytest":
            if block.mark == "continues":
                made[-1] = replace(made[-1], text=f"{made[-1].text}\n{block.text}")
            else:
                start = (SETUPS / f"{block.value}.py").read_text() + "\n" if block.mark == "setup" else ""
                needs = block.value if block.mark == "extra" else ""
                if needs in FRAMEWORKS:
                    start = (MODELS / f"{needs.replace('-', '_')}.py").read_text() + "\n"
                made.append(Program(page, block.line, start + block.text, None, needs))
        before = block.language
    return [program for program in made if program.extra == extra]


def shown_tests(page: str) -> str:
    """The page's blocks that are tests, in one file; empty where it has none."""
    return "\n\n".join(block.text for block in blocks(page) if (block.language, block.mark) == ("python", "pytest"))


def commands(page: str) -> Iterator[tuple[Block, str, str]]:
    """Each command of a page's console blocks (a line with `$ `), and what is shown of its output."""
    for block in blocks(page):
        if block.language == "console":
            for each in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, shown = each.partition("\n")
                yield block, command, shown


def shows(shown: str, said: str) -> bool:
    """Whether the output is the one that a page shows, in which `…` stands for anything."""
    pattern = re.escape(shown.strip()).replace("…", ".*")
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None
