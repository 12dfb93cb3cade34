"""The behaviour tests of sessions, on a cluster."""

from tests.behaviour.sessions import test_sessions
from tests.cluster.conftest import on_cluster

CELLS = "test_the_cells_of_a_closed_session_end"
globals().update(on_cluster(test_sessions, without={CELLS: "it looks into the pool of this machine"}))
