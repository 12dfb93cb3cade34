"""The behaviour tests of channels, on a cluster."""

from tests.behaviour.channels import test_channels
from tests.cluster.conftest import on_cluster

TOKENS = "test_every_operation_reaches_the_channel"
globals().update(on_cluster(test_channels, without={TOKENS: "it counts tokens that come back with time"}))
