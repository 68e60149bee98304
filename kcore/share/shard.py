"""The share shard: the state machine of one partition of `__share_group_state` (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.protocol.records import SHARE_GROUP_STATE, UnknownRecord, decode_key, decode_value
from kcore.protocol.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from kcore.protocol.records.share_update import ShareUpdateKey, ShareUpdateValue
from kcore.runtime.machine import Outcome, Record
from kcore.runtime.slices import until_settled
from kcore.share.state import SharePartitionKey, apply_snapshot, apply_update, key_of, tombstone
from kcore.share.upkeep import UpkeepTimer
from kcore_ext.share.state_update import replay_update
from kcore_ext.share.states import ShareState, ShareStates
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.config.node import Config
    from kcore.runtime.machine import ShardContext
    from kcore.runtime.topics import TopicImage

TOPIC_NAME = SHARE_GROUP_STATE
"""The internal topic whose partitions are share shards."""

SLICE_STATES = 1_000
"""The number of share partitions that one slice of long work checks."""

SLICE_RECORDS = 200
"""The number of records that one slice of long work writes."""


_VERSION_0 = b"\0\0"
_SNAPSHOT = ShareSnapshotKey.RECORD_TYPE.to_bytes(2, "big")
_UPDATE = ShareUpdateKey.RECORD_TYPE.to_bytes(2, "big")


class ShareServices(NamedTuple):
    """The components of a node that its share shards use.

    Attributes:
        config: the node's settings.
        topics: the cluster's topics.
        enabled: returns True if share groups are enabled.
        prune: deletes the records of a partition of `__share_group_state` below an offset.
    """

    config: Config
    topics: TopicImage
    enabled: Callable[[], bool]
    prune: Callable[[int, int], None]


class ShareShard:
    """The share partitions whose keys belong to one partition of `__share_group_state`.

    Args:
        context: time and timers of the shard that owns this machine.
        services: the components of the node that it uses.

    Attributes:
        context: time and timers of the shard that owns this machine.
        services: the components of the node that this machine uses.
        states: the share partitions.
        now: the clock, which is read once per round.
        max_updates: the number of updates after which a WriteShareGroupState request makes a snapshot.
        pruned_before: the offset below which the last pruning deleted records of the log.
    """

    __slots__ = ("_deleted_topics", "_upkeep", "context", "max_updates", "now", "pruned_before", "services", "states")

    def __init__(self, context: ShardContext, services: ShareServices) -> None:
        self.context = context
        self.services = services
        self.now = context.now
        self.states: ShareStates = ShareStates()
        self.max_updates: int = services.config.share_coordinator_snapshot_update_records_per_snapshot
        self.pruned_before = -1
        self._upkeep: UpkeepTimer | None = None
        self._deleted_topics = 0  # topics whose states a queued slice will delete

    # ---- StateMachine

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """Decodes a record; returns None for an unknown type of key, which is skipped as in Kafka."""
        # A load spends most of its time here: the two types that share shards write are recognized first.
        if key is not None and value is not None and value[:2] == _VERSION_0:
            if key[:2] == _SNAPSHOT:
                return ShareSnapshotKey.decode(key, 0, 2), ShareSnapshotValue.decode(value, 0, 2)
            if key[:2] == _UPDATE:
                return ShareUpdateKey.decode(key, 0, 2), ShareUpdateValue.decode(value, 0, 2)
        if key is None:
            return None
        typed = decode_key(TOPIC_NAME, key)
        if isinstance(typed, UnknownRecord):
            return None
        return typed, decode_value(typed, value)

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        """Applies a snapshot, an update or the deletion of a share partition."""
        identity = SharePartitionKey(shared_text(key.group_id), key.topic_id, key.partition)
        if type(key) is ShareSnapshotKey:
            if value is None:
                self.states.discard(identity)
                return
            assert type(value) is ShareSnapshotValue
            state = self.states.get(identity)
            if state is None:
                state = ShareState()
                apply_snapshot(state, offset, value, self.max_updates)
                self.states.put(identity, state)
            else:
                apply_snapshot(state, offset, value, self.max_updates)
        elif value is not None:
            assert type(key) is ShareUpdateKey
            assert type(value) is ShareUpdateValue
            state = self.states.get(identity)
            if state is None:
                # The snapshot was pruned, or another program wrote the log. As in Kafka, the update applies to an empty
                # state.
                state = ShareState()
                state.begin_without_snapshot(offset)
                self.states.put(identity, state)
            apply_update(state, value)

    replay_block = staticmethod(replay_update)  # applies an update of a partition leader; see `BlockReplay`

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Ignores a marker: no transaction writes to this topic, so only an operator can have written one."""

    def on_loaded(self) -> None:
        """Starts the periodic work, and deletes the state of topics that were deleted before a crash."""
        self._upkeep = UpkeepTimer(self)
        self._upkeep.arm()
        topics = self.services.topics
        if any(topics.by_id(state.topic_id) is None for state in self.states.values()):
            self.on_topic_deleted()

    def on_unloaded(self) -> None:
        """Stops the periodic work."""
        if self._upkeep is not None:
            self._upkeep.disarm()
            self._upkeep = None

    # ---- long work

    def on_topic_deleted(self) -> None:
        """Starts to delete the states of deleted topics, in slices. One run deletes the states of all topics that are
        deleted together.
        """
        if self.states:
            self._deleted_topics += 1
            if self._deleted_topics == 1:
                settled = until_settled(lambda: self._deleted_topics)
                self.context.in_slices(chain(settled, self.delete_missing_topics()))

    def delete_missing_topics(self) -> Iterator[Outcome | None]:
        """Deletes the state of share partitions whose topic does not exist, in slices.

        Yields:
            The outcome of each slice, which contains its tombstones; None if the slice has no tombstone.
        """
        self._deleted_topics = 0
        records: list[Record] = []
        remaining = SLICE_STATES
        for state in self.states.values():
            remaining -= 1
            # A state that was deleted meanwhile has no group any more.
            if state.group_id is not None and self.services.topics.by_id(state.topic_id) is None:
                records.append(tombstone(key_of(state)))
            if not remaining or len(records) >= SLICE_RECORDS:
                yield Outcome(records) if records else None
                remaining, records = SLICE_STATES, []
        if records:
            yield Outcome(records)
