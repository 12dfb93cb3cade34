"""The rehearsal of a request in the zygote."""

import os

from toolcell.runner import warm
from toolcell_sandbox.profile import CellProfile


def test_it_leaves_no_descriptor_open() -> None:
    before = os.listdir("/proc/self/fd")
    warm.rehearse_request(CellProfile())
    assert os.listdir("/proc/self/fd") == before
