"""The fingerprint of a tool as its server describes it. The supervisor and the cell compute the same."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

PARTS = ("name", "description", "inputSchema", "outputSchema")
"""The parts of a description that a fingerprint covers: what a model reads, and what arguments and results are."""
PROBLEM = "problem"
"""Beside the name of a tool, instead of a description that cannot be sent: the reason."""


def fingerprint_of(described: Mapping[str, Any]) -> str:
    """A digest of the description. Other parts than `PARTS` do not count."""
    covered = {part: described[part] for part in PARTS if described.get(part) is not None}
    canonical = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
