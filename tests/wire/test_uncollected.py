"""No garbage is collected while the runtime is imported, and the collector is as it was afterwards."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from toolcell.wire.switches import Uncollected

pytestmark = pytest.mark.trick


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_is_off_inside_and_on_afterwards() -> None:
    with Uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with Uncollected():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_it_is_on_again_after_an_import_that_failed() -> None:
    with pytest.raises(ImportError), Uncollected():
        raise ImportError
    assert gc.isenabled()


PROGRAM = """
import gc, sys
from toolcell import Supervisor
Supervisor  # imported, and not yet the runtime behind it
assert "toolcell.runtime.runtime" not in sys.modules
seen = []
gc.callbacks.append(lambda phase, info: seen.append(phase))
Supervisor()
print(seen.count("start"))
"""


def test_the_import_of_the_runtime_collects_next_to_nothing() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10  # hundreds without the trick
