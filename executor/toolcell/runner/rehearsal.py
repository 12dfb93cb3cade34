"""Going through a cell's first motions in a process that is not one yet, so that the pages which they write to are its
own when it becomes one. `warm` does the same for a call process."""

import gc
import os
from typing import cast

from toolcell.wire.frames import Field, FrameDecoder, Violation, encode
from toolcell.wire.messages import VERSION, Hello, Load, from_fields, to_fields
from toolcell.wire.protocol import CONTROL_LIMITS
from toolcell_sandbox.report import SandboxReport

from . import loading

_OPTIONS: dict[str, Field] = {"environ": {"PATH": "/usr/bin", "HOME": "/tmp"}, "cwd": "/tmp", "cpu_s": 1.0}
_TOOLS: list[Field] = [{"name": "rehearse", "how": "import", "where": "toolcell_tools.encode:encode_json"}]
_LOAD = b"".join(encode(to_fields(Load(_TOOLS, _OPTIONS)), CONTROL_LIMITS))


def rehearse(report: SandboxReport) -> None:
    """What `cell.main` does until it has its tools, with nothing sent and nothing read."""
    hello = Hello(VERSION, {"report": cast("Field", report.to_wire()), "pid": os.getpid()})
    encode(to_fields(hello), CONTROL_LIMITS)
    for frame in FrameDecoder(CONTROL_LIMITS).feed(_LOAD):
        load = frame if isinstance(frame, Violation) else from_fields(frame)
        if isinstance(load, Load):
            os.environ.update(os.environ.copy())
            loading.load(cast("list[dict[str, object]]", load.tools))
    loading.started_threads()
    gc.collect()
