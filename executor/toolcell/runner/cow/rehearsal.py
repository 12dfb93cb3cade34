"""Going through a cell's first motions in a process that is not one yet, so that the pages which they write to are its
own when it becomes one. `warm` does the same for a call process."""

import gc
import os
from typing import cast

from toolcell.runner import loading
from toolcell.runner.context import Contexts
from toolcell.runner.control import InitControl
from toolcell.runner.link import Link
from toolcell.runner.options import Options
from toolcell.wire.frames import HEADER, Field, WireLimits
from toolcell.wire.messages import VERSION, Hello, Load, MakeCell, Prepare
from toolcell.wire.protocol import ZygoteLink
from toolcell_sandbox.profile import Profile
from toolcell_tools.capability import Capability

from .warm import SESSION, unprotected

_SESSION: dict[str, Field] = {**SESSION, "grants": [str(capability.value) for capability in Capability]}
_TOOLS: list[Field] = [{"name": "rehearse", "how": "import", "where": "toolcell_tools.encode:encode_json"}]
_ENVIRON: dict[str, Field] = {"PATH": "/usr/bin", "HOME": "/tmp"}
_SAID = Load(_TOOLS, _ENVIRON, "/tmp", False, True, False, 1.0, 1, 1, "/tmp", [], [], _SESSION)
_LOAD = InitControl.packed(_SAID)[HEADER.size :]


def rehearse_request(profile: Profile) -> None:
    """In the zygote: write to the pages that a request writes to, which the prespawned cell shares. They are copied
    now, and not when a request comes."""
    supervisor, zygote = ZygoteLink.of_supervisor(), ZygoteLink.of_zygote()
    asked = cast("dict[str, Field]", profile.to_wire(short=True))
    for message in (Prepare(None, [], None), MakeCell(0, asked, [], [], None, [], False, [])):
        zygote.receive(supervisor.send(message))
    Profile.from_wire(asked)


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
