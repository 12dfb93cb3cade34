"""The behaviour tests of the memory, on a cluster."""

from tests.behaviour.memory import test_memory
from tests.cluster.conftest import on_cluster

globals().update(on_cluster(test_memory, without={}))
