"""A plugin of pytest: the tests of a module are collected in the one worker that runs them.

pytest-xdist has each worker collect all tests: 4 s of processor time in each, for imports, the rewriting of assertions
and 11,000 items. Here workers collect one item for each module instead, which xdist distributes. To run such an item is
to collect the module's tests, to run them, and to report each.

Where a command selects tests by `-k`, by `::` or by a marker, each worker collects all tests, as xdist has it.
"""

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from .selection import is_smoke


class UnreadModule(pytest.File):
    """A module that this worker has not imported."""

    def collect(self) -> Iterator[pytest.Item]:
        item = TestsOfModule.from_parent(self, name=self.path.name, nodeid=self.nodeid)
        item.add_marker(pytest.mark.timeout(0))  # each test has its own
        if is_smoke(self.path):
            item.add_marker("smoke")
        yield item


class TestsOfModule(pytest.Item):
    """All tests of a module, as one item for xdist."""

    def runtest(self) -> None:
        raise NotImplementedError("pytest_runtest_protocol calls run_all")

    def run_all(self, nextitem: pytest.Item | None) -> None:
        """Collect the tests, run and report them. `nextitem` is what this worker runs next."""
        session = self.session
        place = session.items.index(self)  # xdist takes reports of the item at this place only
        tests = self._collected()
        if not tests:  # then no test tears down what the module before has left to this one
            session._setupstate.teardown_exact(nextitem)
        for test, following in zip(tests, [*tests, nextitem][1:], strict=True):
            session.items[place] = test
            test.ihook.pytest_runtest_protocol(item=test, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        session.items[place] = self

    def _collected(self) -> list[pytest.Item]:
        assert self.parent is not None
        module = pytest.Module.from_parent(self.parent.parent, path=self.path)
        gc.disable()  # it would go through the tests that there are so far, again and again
        try:
            tests = list(self.session.genitems(module))  # reports a module that cannot be imported
        finally:
            gc.enable()
        self.ihook.pytest_collection_modifyitems(session=self.session, config=self.config, items=tests)
        return tests


class Progress:
    """What the process that starts the workers tells the terminal: it knows the number of modules, but not of tests."""

    def __init__(self) -> None:
        self._session: pytest.Session | None = None
        self._modules = 0
        self._begun: set[str] = set()
        self._reports = 0
        self._last: dict[str, str] = {}

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._modules = 0 if any("::" in nodeid for nodeid in ids) else len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Estimate the number of tests, so that the terminal shows the share of the modules that have begun."""
        self._last[report.node.gateway.id] = report.nodeid
        if self._modules and self._session is not None:
            self._begun.add(report.nodeid.partition("::")[0])
            self._reports += 1
            self._session.testscollected = self._reports * self._modules // len(self._begun)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: Any) -> None:
        """Name the last test that the worker reported: it crashed in the next one."""
        report.longrepr += f"; its last report was of {self._last.get(report.node.gateway.id)}"


def are_whole(config: pytest.Config) -> bool:
    """Whether this process is a worker that runs whole modules."""
    options = config.option
    return (
        hasattr(config, "workerinput")
        and not (options.keyword or options.deselect)
        and options.markexpr in ("", "smoke")
        and not any("::" in argument for argument in config.args)
    )


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Progress())


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    return UnreadModule.from_parent(parent, path=module_path) if are_whole(parent.config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not isinstance(item, TestsOfModule):
        return None
    item.run_all(nextitem)
    return True
