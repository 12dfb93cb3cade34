"""The behaviour tests of outcomes, on a cluster."""

from tests.behaviour.outcomes import test_outcomes
from tests.cluster.conftest import on_cluster

globals().update(on_cluster(test_outcomes, without={}))
