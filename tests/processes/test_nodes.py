"""Tests of whole nodes, in virtual time, over a data folder."""

from __future__ import annotations

from tests.cluster.test_failover import (  # noqa: F401 - pytest collects them here, too
    client,
    test_a_deleted_topic_is_gone_everywhere,
    test_a_draining_node_leads_nothing,
    test_a_killed_node_loses_no_acknowledged_write,
    test_a_node_that_restarts_at_once_leads_in_a_new_epoch,
    test_a_stopped_controller_is_succeeded_at_once,
    test_a_zombie_writes_nothing_and_serves_nothing,
    test_committed_offsets_survive_a_restart_of_every_node,
)
from tests.processes.world import world  # noqa: F401
