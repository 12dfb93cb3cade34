"""The behaviour tests of results and of confirmations, on a cluster."""

from tests.behaviour.calls import test_confirmation
from tests.cluster.conftest import on_cluster

OF_THE_POOL = "test_a_call_ends_as_pending_and_runs_again_with_the_answer"
globals().update(on_cluster(test_confirmation, without={OF_THE_POOL: "it looks into the pool of this machine"}))
