"""The behaviour tests of grants, on a cluster."""

from tests.behaviour.grants import test_matrix
from tests.cluster.conftest import on_cluster

globals().update(on_cluster(test_matrix, without={}))
