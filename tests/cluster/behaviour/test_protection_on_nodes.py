"""The behaviour tests of protected names, on a cluster."""

from tests.behaviour.protected import test_protected
from tests.behaviour.protected.conftest import *  # noqa: F403 - its fixtures
from tests.cluster.conftest import on_cluster

OWN = "it has a quarantine of its own, and that of a node is the first driver's"
HERE = "it looks into the protection of this machine"
WITHOUT = {
    "test_a_supervisor_that_is_left_audits_what_still_ran": OWN,
    "test_what_a_kept_process_plants_after_its_last_call_is_found_when_it_ends": OWN,
    "test_a_file_of_the_users_own_is_left_alone_once_the_kept_process_is_gone": HERE,
    "test_what_is_stuck_is_tried_again_beside_the_calls_of_other_sessions": OWN,
    "test_the_copies_of_settings_are_gone_with_the_supervisor": "the node's supervisor stays",
}
globals().update(on_cluster(test_protected, without=WITHOUT))
