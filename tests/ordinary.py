"""An ordinary user for tests that root runs, by as_user.py. Each worker of pytest-xdist has one of its own: limits on
processes count all processes of a user."""

import os
from pathlib import Path

AS_USER = Path(__file__).parent / "as_user.py"
USER = 12345 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
