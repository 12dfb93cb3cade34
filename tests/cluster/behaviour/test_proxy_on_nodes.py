"""The behaviour tests of the proxy of cells, on a cluster."""

from tests.behaviour.network import test_proxy
from tests.cluster.conftest import on_cluster

globals().update(on_cluster(test_proxy, without={}))
