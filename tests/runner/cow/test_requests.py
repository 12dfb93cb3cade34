"""The rehearsal of a request in the zygote."""

import os

from toolcell.runner.cow import requests
from toolcell_sandbox.profile import CellProfile


def test_it_leaves_no_descriptor_open() -> None:
    before = os.listdir("/proc/self/fd")
    requests.rehearse(CellProfile())
    assert os.listdir("/proc/self/fd") == before
