"""`python -I -m toolcell.runner FD`: the zygote, talking to its supervisor over the inherited socket FD."""

import sys

from .zygote import main

main(int(sys.argv[1]))
