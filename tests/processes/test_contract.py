"""The tests of a shared store and its log engine, over a data folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.test_shared_engine import (  # noqa: F401 - pytest collects them here, too
    nodes,
    test_a_change_of_leaders_needs_a_record,
    test_a_fenced_node_stores_nothing,
    test_a_follower_becomes_the_leader_with_the_same_handle,
    test_a_follower_cannot_write,
    test_a_follower_sees_the_end_that_the_leader_committed,
    test_a_handle_with_staged_changes_is_not_released,
    test_a_moved_partition_fences_its_old_leader,
    test_a_moved_partition_is_not_reclaimed_by_its_old_leader,
    test_a_new_incarnation_fences_the_earlier_one,
    test_a_node_adopts_only_partitions_that_it_leads_in_the_epoch,
    test_a_node_begins_with_no_partition,
    test_a_released_partition_is_left_to_its_new_leader,
    test_a_removed_partition_is_reclaimed_by_the_controller,
    test_only_the_controller_creates_partitions,
    test_partitions_are_created_with_their_record_and_adopted,
)
from tests.cluster.test_store import (  # noqa: F401 - pytest collects them here, too
    test_a_controller_without_its_lease_fences_no_node,
    test_a_fenced_node_cannot_take_the_controller,
    test_a_node_id_in_use_is_refused_until_its_lease_expires,
    test_a_node_registers_and_the_others_see_it,
    test_a_released_controller_lease_can_be_taken_at_once,
    test_a_renewal_extends_the_lease_by_the_stores_clock,
    test_a_repeated_registration_of_the_same_process_succeeds,
    test_an_expired_lease_that_was_not_taken_can_be_renewed,
    test_an_unregistered_node_ends_both_leases,
    test_draining_is_a_flag_of_a_known_node,
    test_one_node_at_a_time_is_controller,
    test_only_an_expired_lease_is_fenced,
)
from tests.processes.shared import LocalShared


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[LocalShared]:
    store = LocalShared(tmp_path)
    yield store
    store.close()
