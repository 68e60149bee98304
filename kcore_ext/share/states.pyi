from typing import Any, final

from kcore.share.batches import Batches

@final
class ShareState:
    """The state of one share partition. Only `ShareShard.replay` changes it.

    Attributes:
        group_id: the share group; None while the state is not in a `ShareStates` table. In that case, `topic_id` and
            `partition` are undefined.
        topic_id: the topic's id, 16 bytes.
        partition: the partition's number.
        snapshot_epoch: the epoch of the last snapshot.
        state_epoch: increases when the group initializes the share partition.
        leader_epoch: the leader epoch that ReadShareGroupState has recorded last.
        start_offset: the first offset that may be delivered; -1 if the group's reset policy decides.
        delivery_complete_count: the number of offsets from `start_offset` on whose delivery is complete; -1 if unknown.
        batches: the delivery states from `start_offset` on.
        create_timestamp: the time of the last snapshot that a request caused, in ms since the epoch.
        write_timestamp: the time of the last snapshot of any kind, in ms since the epoch.
        highest_state_epoch: requests with a lower state epoch are fenced.
        highest_leader_epoch: requests with a lower leader epoch are fenced.
        updates: the number of updates since the last snapshot that was due because of this number. Other snapshots do
            not reset it. After a load, the number is smaller if the oldest records of the log were deleted.
        snapshot_offset: the offset of the last snapshot. All records of the shard below the lowest `snapshot_offset`
            can be deleted.
    """

    @property
    def group_id(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partition(self) -> int: ...
    @property
    def batches(self) -> Batches: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def create_timestamp(self) -> int: ...
    @property
    def write_timestamp(self) -> int: ...
    @property
    def snapshot_offset(self) -> int: ...
    @property
    def snapshot_epoch(self) -> int: ...
    @property
    def state_epoch(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def delivery_complete_count(self) -> int: ...
    @property
    def highest_state_epoch(self) -> int: ...
    @property
    def highest_leader_epoch(self) -> int: ...
    @property
    def updates(self) -> int: ...
    def put_snapshot(
        self,
        offset: int,
        snapshot_epoch: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: Batches,
        create_timestamp: int,
        write_timestamp: int,
    ) -> None:
        """Sets the state to the contents of a snapshot, except the number of updates.

        `highest_state_epoch` and `highest_leader_epoch` do not decrease.

        Args:
            offset: the offset of the snapshot's record.
            snapshot_epoch: rises with each snapshot.
            state_epoch: the state epoch of the last initialization.
            leader_epoch: the last leader epoch that ReadShareGroupState has recorded.
            start_offset: the first offset that may be delivered; -1 if the group's reset policy decides.
            complete_count: the number of offsets from `start_offset` on whose delivery is complete; -1 if unknown.
            batches: the delivery states from `start_offset` on.
            create_timestamp: the time of the last snapshot that a request caused, in ms since the epoch.
            write_timestamp: the time of this snapshot, in ms since the epoch.
        """

    def put_update(
        self, snapshot_epoch: int, leader_epoch: int, start_offset: int, complete_count: int, batches: Batches
    ) -> None:
        """Sets the fields that an update contains, and counts the update.

        Args:
            snapshot_epoch: the epoch of the snapshot that the update belongs to.
            leader_epoch: the leader epoch; -1: no change.
            start_offset: the start offset after the update.
            complete_count: the number of offsets from `start_offset` on whose delivery is complete; -1 if unknown.
            batches: the delivery states after the update.
        """

    def begin_without_snapshot(self, offset: int) -> None:
        """Prepares an empty state for an update at `offset` that has no snapshot before it."""

    def reset_updates(self) -> None:
        """Sets the number of updates to 0."""

    def dump(self) -> tuple[Any, ...]:
        """Returns all attributes except `group_id`, `topic_id` and `partition`, for `restore`."""

    def restore(self, *fields: Any) -> None:
        """Sets the attributes to the values that `dump` has returned."""

@final
class ShareStates:
    """A hash table with the states of the share partitions of one share shard.

    It stores no keys, because the states contain them.
    """

    def __len__(self) -> int: ...
    def __contains__(self, key: tuple[str, bytes, int]) -> bool: ...
    def get(self, key: tuple[str, bytes, int]) -> ShareState | None:
        """Returns the state of a share partition, or None."""

    def put(self, key: tuple[str, bytes, int], state: ShareState) -> None:
        """Adds the state of a share partition.

        Args:
            key: the share partition.
            state: the state of the share partition, which becomes part of this table alone.

        Raises:
            ValueError: the share partition has a state already, or the state is in a table already.
        """

    def discard(self, key: tuple[str, bytes, int]) -> None:
        """Removes the state of a share partition. Does nothing if there is no state."""

    def values(self) -> list[ShareState]:
        """Returns the states, in no particular order. Each state has the identity of its share partition."""

    def lowest_offset(self) -> int:
        """Returns the lowest offset of a snapshot; -1 if there is no state."""

    def has_requested_snapshot(self) -> bool:
        """Returns True if at least one share partition has a last snapshot that a request caused.

        A snapshot that a request caused has equal values of `create_timestamp` and `write_timestamp`. A cold snapshot,
        which the shard writes for an idle share partition, has a later `write_timestamp`.
        """
