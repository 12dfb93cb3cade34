"""Name another agent in the arguments of a memory search: the supervisor's word counts.

Source: X04
"""

from tests.escape.kit import Scene, request

EXPECT: list[object] = []
GRANTS = "memory.read"


def attack(scene: Scene) -> object:
    return request("memory.search", {"query": "", "limit": 5, "namespace": "other", "agent_id": "other"})["value"]
