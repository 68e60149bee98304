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
    test_a_second_round_is_refused_until_the_first_one_ends,
    test_an_older_epoch_is_fenced_and_a_newer_one_is_recorded_with_its_start_offset,
    test_append_stamps_offset_and_epoch_in_place_and_outside_the_crc,
    test_appends_during_the_write_of_a_round_belong_to_the_next_round,
    test_appends_staged_after_a_failing_round_are_discarded_with_it,
    test_bytes_that_are_not_exactly_one_batch_are_refused_and_change_nothing,
    test_changes_staged_when_the_engine_closes_are_lost,
    test_delete_before_keeps_the_batch_that_contains_the_offset_and_moves_the_epochs,
    test_dropping_a_partition_that_was_never_committed_needs_no_commit,
    test_named_values_survive_a_restart_once_they_are_committed,
    test_one_round_writes_many_partitions_staged_in_any_order,
    test_rollback_does_not_affect_the_round_that_is_being_written,
    test_staged_batches_are_counted_but_not_readable,
    test_the_callers_buffer_may_be_reused,
)
from tests.log.test_read import (  # noqa: F401 - pytest collects them here, too
    test_a_long_iteration_crosses_slices_and_sees_nothing_appended_since,
    test_a_read_contains_no_batches_of_neighbouring_partitions,
    test_a_round_written_on_another_thread_is_readable_after_it_is_finished,
    test_a_search_by_timestamp_finds_the_first_batch_that_reaches_it,
    test_batches_contains_only_the_batches_between_two_offsets,
    test_max_bytes_counts_whole_batches,
    test_read_begins_with_the_batch_that_contains_the_offset,
    test_readers_on_other_threads_see_whole_prefixes_while_the_owner_commits,
    test_retention_that_overtakes_an_iteration_is_reported,
    test_upto_offset_cuts_before_the_batch_that_reaches_it,
)
from tests.log.test_rewrite import (  # noqa: F401 - pytest collects them here, too
    test_a_gap_above_the_compaction_mark_is_damage,
    test_a_rewrite_of_the_last_batch_or_with_invalid_bytes_is_refused,
    test_a_search_by_timestamp_reads_the_remaining_batches,
    test_an_iteration_continues_while_the_log_is_compacted,
    test_readers_see_the_rewritten_batches_and_skip_gaps,
    test_retention_may_end_in_a_gap_and_overrides_a_rewrite,
)
from tests.log.test_snapshots import (  # noqa: F401 - pytest collects them here, too
    test_a_snapshot_begins_again_after_a_failed_commit,
    test_a_snapshot_is_visible_once_its_switch_is_committed,
    test_a_snapshot_that_is_replaced_while_it_is_read_is_reported,
    test_chunks_are_accepted_only_in_order_and_at_committed_offsets,
    test_deleted_space_is_used_again,
    test_reclaim_keeps_a_new_snapshot_at_the_offset_of_an_abandoned_one,
    test_the_previous_snapshot_is_readable_until_the_next_is_committed,
)
from tests.log.test_tail import (  # noqa: F401 - pytest collects them here, too
    test_rounds_in_the_journal_are_sorted_by_partition_and_offset,
)
from tests.postgresql.shared import PostgresShared


class CreatingEngine(SharedLogEngine):
    """An engine whose `open` creates a missing partition, as the engine of a single node does."""

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
        """Opens a new engine in place of the old one, as after a restart of the node. The controller gives it all
        partitions again.
        """
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
