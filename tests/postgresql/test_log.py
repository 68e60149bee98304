"""The tests of the log engine, over PostgreSQL.

Tests of failed creations and drops do not apply: only the controller creates and removes partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kcore.cluster.store import METADATA
from kcore.log.interface import PartitionKey, PartitionLog
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from tests.cluster.conftest import TTL_MS, description
from tests.cluster.test_shared_engine import record
from tests.log.test_append import (  # noqa: F401 - pytest collects them here, too
    test_a_closed_engine_refuses_everything,
    test_an_older_epoch_is_fenced_and_a_newer_one_recorded_where_it_began,
    test_append_stamps_offset_and_epoch_in_place_and_outside_the_crc,
    test_appends_made_while_a_round_is_written_belong_to_the_next,
    test_delete_before_keeps_the_batch_with_the_offset_and_moves_the_epochs,
    test_dropping_what_was_never_committed_needs_no_commit,
    test_many_partitions_in_one_round_staged_in_any_order,
    test_named_values,
    test_one_round_at_a_time,
    test_rollback_leaves_the_round_that_is_being_written_alone,
    test_staged_batches_are_counted_but_not_readable,
    test_the_callers_buffer_may_be_reused,
    test_what_is_not_one_batch_is_refused_and_changes_nothing,
    test_what_was_staged_after_a_failing_round_goes_with_it,
    test_what_was_staged_when_the_engine_closed_is_not_there,
)
from tests.log.test_read import (  # noqa: F401 - pytest collects them here, too
    test_a_long_iteration_crosses_slices_and_sees_nothing_appended_since,
    test_a_round_written_on_another_thread,
    test_batches_between_two_offsets,
    test_max_bytes_counts_whole_batches,
    test_neighbouring_partitions_do_not_show,
    test_read_begins_with_the_batch_that_contains_the_offset,
    test_readers_on_other_threads_see_whole_prefixes_while_the_owner_commits,
    test_retention_that_overtakes_an_iteration_is_reported,
    test_timestamps_lead_to_the_first_batch_that_reaches_them,
    test_upto_offset_cuts_before_the_batch_that_reaches_it,
)
from tests.log.test_rewrite import (  # noqa: F401 - pytest collects them here, too
    test_a_gap_above_the_mark_is_damage,
    test_an_iteration_goes_on_while_the_log_is_compacted,
    test_readers_see_what_was_put_there_and_step_over_gaps,
    test_retention_ends_in_a_gap_and_wins_over_a_rewrite,
    test_the_last_batch_and_wrong_bytes_are_refused,
    test_timestamps_are_found_in_what_is_left,
)
from tests.log.test_snapshots import (  # noqa: F401 - pytest collects them here, too
    test_a_failed_commit_means_beginning_the_snapshot_again,
    test_a_snapshot_shows_when_its_switch_is_committed,
    test_a_snapshot_that_is_replaced_while_it_is_read_is_reported,
    test_chunks_come_in_order_and_at_committed_offsets,
    test_deleted_space_is_used_again,
    test_reclaim_spares_a_snapshot_begun_again_at_the_offset_of_one_given_up,
    test_the_previous_snapshot_is_readable_until_the_next_is_committed,
)
from tests.log.test_tail import (  # noqa: F401 - pytest collects them here, too
    test_rounds_in_the_journal_are_sorted_by_partition_and_offset,
)
from tests.postgresql.shared import PostgresShared


class CreatingEngine(SharedLogEngine):
    """Creates a partition when it is opened, as the engine of one node does."""

    __slots__ = ()

    def open(self, key: PartitionKey, log_start_offset: int = 0) -> PartitionLog:
        if key not in self._logs:
            record(self)
            self.create(key, 1, 0)
            self.commit()
            self.adopt([Leadership(key, 0)])
        return super().open(key)

    def partitions(self) -> list[PartitionKey]:
        return [each for each in super().partitions() if each != METADATA]


class Store:
    kind = "postgresql"

    def __init__(self, shared: PostgresShared) -> None:
        self.store = shared.open()
        self.engine = self.open()

    def open(self) -> CreatingEngine:
        lease = self.store.register(1, description(), TTL_MS)
        controller = self.store.take_controller(lease, TTL_MS)
        assert controller is not None
        self.engine = CreatingEngine(self.store.storage())
        self.engine.adopt([Leadership(METADATA, controller.epoch)])
        return self.engine

    def reopen(self) -> CreatingEngine:
        """Starts a new incarnation, to which the controller gives all partitions again."""
        self.engine.close()
        engine = self.open()
        rows = [row for row in self.store.leaders() if row.key != METADATA]
        if rows:
            record(engine)
            for row in rows:
                engine.move(row.key, 1, row.leader_epoch + 1, row.leader_epoch)
            engine.commit()
            engine.adopt([Leadership(row.key, row.leader_epoch + 1) for row in rows])
        return engine


@pytest.fixture
def store(reused_url: str) -> Iterator[Store]:
    shared = PostgresShared(reused_url)
    yield Store(shared)
    shared.close()


@pytest.fixture
def engine(store: Store) -> CreatingEngine:
    return store.engine
