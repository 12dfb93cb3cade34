"""The behaviour tests of confirmations, on a cluster."""

from tests.behaviour.calls import test_confirmation
from tests.cluster.conftest import on_cluster

POOL = "test_a_call_ends_as_pending_and_runs_again_with_the_answer"
globals().update(on_cluster(test_confirmation, without={POOL: "it looks into the pool of this machine"}))
