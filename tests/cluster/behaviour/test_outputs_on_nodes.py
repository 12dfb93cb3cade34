"""The behaviour tests of output, on a cluster."""

from tests.behaviour.calls import test_output
from tests.cluster.conftest import on_cluster

AT_ONCE = "test_output_is_heard_while_the_command_runs_in_order_and_before_the_result"
globals().update(on_cluster(test_output, without={AT_ONCE: "it measures how soon output is heard"}))
