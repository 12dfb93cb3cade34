"""`python -m toolcell_sandbox.doctor`: the report of this machine as JSON. The exit status is 1 if something is
missing."""

import sys

from .kernel.probe import probe


def main() -> int:
    """Print the report; returns the exit status."""
    import json

    report = probe()
    json.dump(report.to_wire(), sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 1 if report.missing else 0


if __name__ == "__main__":
    sys.exit(main())
