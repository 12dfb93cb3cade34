"""The command line, `toolcell`. Importing this package loads nothing, because cells import the demo's tools from it."""


def main() -> None:
    """The console script `toolcell`: run the command that the arguments name, and exit with its status."""
    from .app import toolcell

    toolcell(prog_name="toolcell")
