"""Planted defects of transactions and producers."""

from __future__ import annotations

from typing import Any

from kcore.broker.data import aborted_transactions, producer_state
from kcore.broker.data import partition as data_partition
from kcore.client import delivery
from kcore.errors import KafkaError
from kcore.group.offsets import store
from kcore.protocol.error_codes import ErrorCode
from kcore.transaction import initializing, local_markers, timeouts
from tools.simulate.mutants.mutant import Mutant, Patch


def _stable_at_the_end() -> list[Patch]:
    def update(self: Any) -> None:
        self.last_stable_offset = self.high_watermark

    return [(data_partition.Partition, "_update_last_stable_offset", update)]


def _stable_off_by_one() -> list[Patch]:
    original = data_partition.Partition._update_last_stable_offset

    def update(self: Any) -> None:
        original(self)
        self.last_stable_offset = min(self.last_stable_offset + 1, self.high_watermark)

    return [(data_partition.Partition, "_update_last_stable_offset", update)]


def _aborted_not_listed() -> list[Patch]:
    return [(aborted_transactions.AbortedTransactionIndex, "of_batches", lambda self, batches, start, end: [])]


def _aborts_commit() -> list[Patch]:
    original = local_markers.LocalMarkers.put

    def put(self: Any, partition: Any, shard: Any, producer_id: int, epoch: int, commit: bool, *rest: Any) -> Any:
        return original(self, partition, shard, producer_id, epoch, commit or shard is None, *rest)

    return [(local_markers.LocalMarkers, "put", put)]


def _no_timeout() -> list[Patch]:
    return [(timeouts.Timeouts, "arm", lambda self, transactional_id, deadline_ms: None)]


def _epoch_not_checked() -> list[Patch]:
    original = producer_state.ProducerStates.check_client_data

    def check(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return original(self, *arguments, **options)
        except KafkaError as error:
            if error.code == ErrorCode.INVALID_PRODUCER_EPOCH:
                return None
            raise

    return [(producer_state.ProducerStates, "check_client_data", check)]


def _duplicates_stored() -> list[Patch]:
    original = producer_state.ProducerStates.check_client_data

    def check(self: Any, *arguments: Any, **options: Any) -> Any:
        original(self, *arguments, **options)

    return [(producer_state.ProducerStates, "check_client_data", check)]


def _no_epoch_bump() -> list[Patch]:
    original = initializing._empty

    def empty(producer_id: int, previous: int | None, epoch: int, *rest: Any) -> Any:
        return original(producer_id, previous, max(0, epoch - 1), *rest)

    return [(initializing, "_empty", empty)]


def _aborted_offsets_apply() -> list[Patch]:
    original = store.OffsetStore.complete
    return [(store.OffsetStore, "complete", lambda self, producer_id, commit: original(self, producer_id, True))]


def _committed_offsets_dropped() -> list[Patch]:
    original = store.OffsetStore.complete
    return [(store.OffsetStore, "complete", lambda self, producer_id, commit: original(self, producer_id, False))]


def _client_renumbers() -> list[Patch]:
    """Changes the client: a producer gives a batch a new sequence if the response to its first attempt is lost."""

    def note_unsent(queue: Any, batch: Any) -> bool:
        batch.in_flight = False
        batch.sequence = None
        queue.chain = delivery.ENDED
        return delivery._renew_sequence(queue)

    return [(delivery, "note_unsent", note_unsent)]


TRANSACTION_MUTANTS = (
    Mutant("no-stable-offset", "open transactions do not hold back the last stable offset", _stable_at_the_end),
    Mutant("stable-plus-one", "the last stable offset is one too high", _stable_off_by_one),
    Mutant("aborted-not-listed", "Fetch does not list aborted transactions", _aborted_not_listed),
    Mutant("aborts-commit", "an abort writes commit markers", _aborts_commit),
    Mutant("no-timeout", "transactions never time out", _no_timeout),
    Mutant("epoch-unchecked", "partitions accept old producer epochs", _epoch_not_checked),
    Mutant("duplicates", "partitions store repeated batches again", _duplicates_stored),
    Mutant("no-epoch-bump", "InitProducerId does not raise the epoch", _no_epoch_bump),
    Mutant("aborted-offsets", "offsets of aborted transactions apply", _aborted_offsets_apply),
    Mutant("offsets-dropped", "offsets of committed transactions are dropped", _committed_offsets_dropped),
    Mutant("renumbered", "a producer repeats a batch with a new sequence", _client_renumbers),
)
