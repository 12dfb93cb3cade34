"""Examples and tests name hosts below example.org and example.com only, and no real service."""

import re
from collections.abc import Iterator
from pathlib import Path

from .pages import ROOT

TEXTS = ("*.py", "*.md", "*.toml", "*.yml", "*.yaml", "*.json", "*.sh", "*.cfg", "*.ini")
DATA = ("behaviour/schemas/real", "behaviour/schemas/suite", "benchmarks/plots")
"""Data of others, as it came."""
HOST = re.compile(r"(?:://|[@\"'` (=])((?:[a-z0-9*-]+\.)+(?:com|org|net|io|dev|ai|co|app|cloud|edu|gov))\b(?![.(_-])")
EXAMPLES = re.compile(r"(?:.*\.)?example\.(?:com|org)")
LOOK_ALIKES = re.compile(r"[a-z*-]*mple\.(?:com|org)|\*\.com")
"""What tests of host names compare with those: `notexample.com`, `*.com`."""
SPECIFICATIONS = {
    "github.com": "the schema test suite, and the sources of the comparison",
    "json-schema.org": "identifiers of dialects",
    "k8s.io": "the API groups of Kubernetes, not hosts",
    "keepachangelog.com": "the format of the changelog",
    "prometheus.io": "the format of the metrics",
    "python.org": "whose builds of Python have what others leave out",
    "semver.org": "what a version means",
    "systemd.io": "the rules of cgroup delegation",
    "unixwiz.net": "where an attack is described",
    "alias.co": "a setting of git's, not a host",
}
"""What documentation cites, and why."""


def test_every_host_is_an_example_or_a_source() -> None:
    assert [(place, host) for place, host in hosts() if not is_known(host)] == []


def test_every_source_is_cited() -> None:
    cited = {host.removeprefix("www.") for _place, host in hosts()}
    assert {name for name in SPECIFICATIONS if not any(host.endswith(name) for host in cited)} == set()


def is_known(host: str) -> bool:
    if EXAMPLES.fullmatch(host) or LOOK_ALIKES.fullmatch(host) or host.startswith("toolcell."):
        return True
    return any(host == name or host.endswith(f".{name}") for name in SPECIFICATIONS)


def hosts() -> Iterator[tuple[str, str]]:
    """Each host-like name, and the file that it is in."""
    for path in files():
        for found in HOST.findall(path.read_text()):
            yield str(path.relative_to(ROOT)), found


def files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and any(path.match(text) for text in TEXTS))
    for folder in ("executor", "sandbox", "tools", "tests", "benchmarks", "docs", "examples"):
        for text in TEXTS:
            for path in (ROOT / folder).rglob(text):
                if not any(part in str(path) for part in DATA):
                    yield path
