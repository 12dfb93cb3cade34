"""Going through a cell's first motions in a process that is not one yet, so that the pages which they write to are its
own when it becomes one. `warm` does the same for a call process."""

import gc
import os
from typing import cast

from toolcell.wire.frames import HEADER, Field, WireLimits
from toolcell.wire.messages import VERSION, Hello, Load
from toolcell_tools.capability import Capability

from . import loading
from .context import Contexts
from .control import InitControl
from .link import Link
from .options import Options
from .warm import SESSION, unprotected

_SESSION: dict[str, Field] = {**SESSION, "grants": [str(capability.value) for capability in Capability]}
_TOOLS: list[Field] = [{"name": "rehearse", "how": "import", "where": "toolcell_tools.encode:encode_json"}]
_ENVIRON: dict[str, Field] = {"PATH": "/usr/bin", "HOME": "/tmp"}
_SAID = Load(_TOOLS, _ENVIRON, "/tmp", False, True, False, 1.0, 1, 1, "/tmp", [], [], _SESSION)
_LOAD = InitControl.packed(_SAID)[HEADER.size :]


def rehearse() -> None:
    """What `cell.main` does until it prepares to fork, with nothing sent and nothing read."""
    InitControl.packed(Hello(VERSION))
    load = InitControl.unpacked(_LOAD)
    assert isinstance(load, Load)
    Options.of(load)
    os.environ.update(os.environ.copy())
    loading.load(cast("list[dict[str, object]]", load.tools))
    loading.started_threads()
    Contexts(_SESSION, unprotected, Link(WireLimits()))
    gc.collect()
