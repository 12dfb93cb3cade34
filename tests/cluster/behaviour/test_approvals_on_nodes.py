"""The behaviour tests of approvals, on a cluster."""

from tests.behaviour.calls import test_approval
from tests.cluster.conftest import on_cluster

globals().update(on_cluster(test_approval, without={}))
