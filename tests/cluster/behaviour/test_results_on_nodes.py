"""The behaviour tests of results, on a cluster."""

from tests.behaviour.calls import test_results
from tests.cluster.conftest import on_cluster

globals().update(on_cluster(test_results, without={}))
