from collections.abc import Callable
from typing import Any, final

from kcore.share.batches import Batch
from kcore_ext.batch.builder import BatchBuilder
from kcore_ext.runtime.outcome import Pending

@final
class StateUpdate:
    """One ShareUpdate record, and the state that follows from it. `Outcome` takes it as a sequence of one record."""

    @property
    def size_bytes(self) -> int:
        """The maximum size of the record in a batch."""

    def __len__(self) -> int: ...
    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Appends the record to a batch. Returns False if the batch is full."""

def replay_update(offset: int, producer_id: int, update: StateUpdate) -> None:
    """Applies an update that a partition leader on this node has written.

    Args:
        offset: the offset of the record.
        producer_id: always -1.
        update: the update.
    """

@final
class StateWriter:
    """The writer of one share partition's updates in the share coordinator of this node.

    Args:
        api: the owner of the pending responses: its `storage_error` and `error` give the code of a failed commit.
        coordinator: the share coordinator.
        find_topic: returns a topic by its id, or None.
        combine: `kcore.share.batches.combine`.
        identity: the share partition, as a `SharePartitionKey`.
        name: its share key.
        record_key: the encoded ShareUpdateKey.
    """

    def __init__(
        self,
        api: Any,
        coordinator: Any,
        find_topic: Callable[[bytes], Any],
        combine: Callable[..., tuple[Batch, ...]],
        identity: tuple[str, bytes, int],
        name: str,
        record_key: bytes,
    ) -> None: ...
    def write(
        self, state_epoch: int, leader_epoch: int, start_offset: int, complete_count: int, batches: list[Batch]
    ) -> Pending | None:
        """Writes changed delivery states as one update.

        Args:
            state_epoch: the state epoch that the leader has read.
            leader_epoch: the leader's epoch.
            start_offset: the start offset.
            complete_count: the number of completed offsets from the start on.
            batches: the changed states.

        Returns:
            A `Pending` of the error code, which is 0 once the record is durable; None if WriteShareGroupState must
            decide the write.
        """
