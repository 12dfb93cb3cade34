"""The command line, `toolcell`. Importing this package loads nothing, because cells import the demo's tools from it."""


def main() -> None:
    """The console script `toolcell`: runs the command that the arguments name and exits with its status."""
    from .app import toolcell

    toolcell(prog_name="toolcell")
