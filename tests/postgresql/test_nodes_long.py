"""More tests of whole nodes over PostgreSQL."""

from __future__ import annotations

import pytest

from tests.cluster.test_failover import (  # noqa: F401 - pytest collects them here, too
    client,
    test_a_killed_node_loses_no_acknowledged_write,
    test_a_node_that_restarts_at_once_leads_in_a_new_epoch,
    test_a_stopped_node_hands_over_without_waiting_for_its_lease,
    test_committed_offsets_survive_a_restart_of_every_node,
    test_leader_epochs_grow_with_each_move,
    test_other_nodes_refuse_a_group,
    test_other_nodes_refuse_a_partition,
    test_the_controller_spreads_the_leaders,
)
from tests.postgresql.world import world  # noqa: F401

pytestmark = pytest.mark.long
