"""`python -I -m toolcell.runner FD`: start the zygote, which talks to its supervisor over the inherited socket FD."""

import gc
import sys

gc.disable()  # imported modules stay; garbage collection would take a tenth of the import time

from toolcell.wire.switches import is_on  # noqa: E402

from . import cheap_forks  # noqa: E402

if is_on("fork_handlers"):
    cheap_forks.keep_back()

from .zygote import main  # noqa: E402

main(int(sys.argv[1]))
