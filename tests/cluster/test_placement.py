"""The choice of a node for a session."""

from toolcell.cluster.placement import NodeFacts, choose


def test_a_session_goes_to_its_workspaces_node_then_to_the_least_load() -> None:
    busy = NodeFacts("a", cells=10, calls=9, sessions=1, workspaces=frozenset({"/w"}))
    idle = NodeFacts("b", cells=10, calls=1, sessions=9)
    assert choose([busy, idle], "/w", {}) == "a"
    assert choose([busy, idle], "/w", {}, by_workspace=False) == "b"
    assert choose([busy, idle], "/other", {}) == "b"


def test_a_label_that_no_node_has_leaves_a_session_without_a_node() -> None:
    assert choose([NodeFacts("a", 1, 0, 0, {"disk": "hdd"})], "/w", {"disk": "nvme"}) is None
