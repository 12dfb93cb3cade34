"""The behaviour tests of channels, on a cluster."""

from tests.behaviour.channels import test_channels
from tests.cluster.conftest import on_cluster

globals().update(on_cluster(test_channels, without={}))
