"""Divide the rewriting of assertions among the workers of a test run.

Every worker imports every test module, and most of that time goes into the rewriting of assertions. pytest caches the
rewritten modules, unless PYTHONDONTWRITEBYTECODE is set, but workers that start at the same time all miss the cache.
So each worker first imports its share of the modules into a shared cache, and then finds the other modules there. The
run removes the cache at its end.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .selection import is_smoke

KEY = "toolcell_rewritten"
ENOUGH = 20
"""The fewest modules that are divided. For fewer, the division costs more than it saves."""


class RewrittenModules:
    """The plugin of the process that starts the workers. It makes their shared cache."""

    def __init__(self) -> None:
        self._path = Path(tempfile.mkdtemp(prefix="rewritten-tests-"))

    @pytest.hookimpl(optionalhook=True)  # of xdist
    def pytest_configure_node(self, node: object) -> None:
        given: dict[str, object] = getattr(node, "workerinput")  # noqa: B009 - xdist has no types
        given[KEY] = str(self._path)

    def pytest_unconfigure(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)  # a program that cleans /tmp may have removed it


@contextmanager
def shared(session: pytest.Session) -> Iterator[None]:
    """Import this worker's share of the modules. Within the context, Python uses the shared cache."""
    given: dict[str, object] = getattr(session.config, "workerinput", {})
    if KEY not in given:
        yield
        return
    before = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = str(given[KEY]), False
    try:
        number, count = int(str(given["workerid"]).removeprefix("gw")), int(str(given["workercount"]))
        paths = _modules(session)
        for path in paths[number::count] if len(paths) >= ENOUGH else ():
            with suppress(pytest.Collector.CollectError):  # the collection meets the error again, and reports it
                _ = pytest.Module.from_parent(session, path=path).obj
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


def _modules(session: pytest.Session) -> list[Path]:
    """The test modules below the arguments of the run, in the same order in all workers."""
    smoke = session.config.option.markexpr == "smoke"
    found: set[Path] = set()
    for argument in session.config.args:
        path = session.config.invocation_params.dir / argument.partition("::")[0]
        found.update(path.rglob("test_*.py") if path.is_dir() else [path])
    return sorted(path for path in found if path.is_file() and (is_smoke(path) or not smoke))
