from collections.abc import Callable
from typing import Any, final

from kcore.share.batches import Batch
from kcore_ext.batch.builder import BatchBuilder
from kcore_ext.runtime.outcome import Pending

@final
class StateUpdate:
    """A `RecordBlock` of one ShareUpdate record. It also contains the state of the share partition after the update."""

    @property
    def size_bytes(self) -> int:
        """An upper bound of the bytes that the record takes in a batch."""

    def __len__(self) -> int: ...
    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Appends the record to a batch. Returns False if the batch is full."""

def replay_update(offset: int, producer_id: int, update: StateUpdate) -> None:
    """Applies an update that a partition leader on this node has written.

    Args:
        offset: not used.
        producer_id: not used.
        update: the update to apply.
    """

@final
class StateWriter:
    """A writer that passes the updates of one share partition to the share coordinator of this node.

    Args:
        api: the API of the `Pending` objects. If a commit fails, its `storage_error` and `error` determine the error
            code.
        coordinator: the share coordinator.
        find_topic: returns a topic by its id, or None.
        combine: `kcore.share.batches.combine`.
        identity: the share partition, as a `SharePartitionKey`.
        name: the share partition as a text, which determines its shard.
        record_key: the encoded ShareUpdateKey of the share partition.
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
            leader_epoch: the leader epoch of the writing leader.
            start_offset: the start offset of the share partition after the update.
            complete_count: the number of offsets from the start offset on whose delivery is complete.
            batches: the changed states, as tuples (first offset, last offset, delivery state, delivery count).

        Returns:
            A `Pending` whose response is the error code; it is 0 once the record is durable. None if the writer
            declines the write. The caller must then send a WriteShareGroupState request.
        """
