"""`python -m toolcell.cli`: the same as the console script."""

from . import main

main()
