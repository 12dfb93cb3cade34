"""The behaviour tests of calls, on a cluster."""

from tests.behaviour.calls import test_calls
from tests.cluster.conftest import on_cluster

globals().update(on_cluster(test_calls, without={}))
