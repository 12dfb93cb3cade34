"""The behaviour tests of calls, on a cluster."""

from tests.behaviour.calls import test_calls
from tests.cluster.conftest import tests_of

globals().update(tests_of(test_calls, without={}))
