"""The group shard: the state machine of one partition of `__consumer_offsets`.

It contains groups of every kind and the offset store, but no protocol logic. Each package `kcore/group/<part>` has the
functions that replay its own records. Its module `replay.py` exports `REPLAY`, a map from the class of a record's key
to the function that applies such a record. Loading a package's state needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.replay import REPLAY as CLASSIC_REPLAY
from kcore.group.classic.unused_ids import UnusedIds
from kcore.group.consumer.replay import REPLAY as CONSUMER_REPLAY
from kcore.group.consumer.services import ConsumerServices
from kcore.group.meters import GroupMeters
from kcore.group.offsets.expiry import schedule_expiration
from kcore.group.offsets.loading import replay_run
from kcore.group.offsets.replay import REPLAY as OFFSETS_REPLAY
from kcore.group.offsets.replay import replay_marker, replay_pending_block
from kcore.group.offsets.store import OffsetStore
from kcore.group.share.replay import REPLAY as SHARE_REPLAY
from kcore.group.share.services import ShareGroupServices
from kcore.group.side_effects import LiveValue
from kcore.group.streams.replay import REPLAY as STREAMS_REPLAY
from kcore.group.streams.services import StreamsServices
from kcore.group.table import GroupTable
from kcore.protocol.records import CONSUMER_OFFSETS, UnknownRecord, decode_key, decode_value
from kcore_ext.group.offset_commit import GroupCore

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.group.group import Group
    from kcore.group.streams.timers import InitialDelay
    from kcore.runtime.machine import ShardContext
    from kcore.runtime.topics import TopicImage
    from kcore_ext.batch.run import Run

TOPIC_NAME = CONSUMER_OFFSETS
"""The internal topic whose partitions are group shards."""

ReplayFunction = Callable[["GroupShard", int, int, Any, Any], None]
"""The type of a function that applies one record.

Its arguments are the shard, the offset, the producer id (-1 for none), the key, and the value (None for a tombstone).
"""

REPLAY: dict[type, ReplayFunction] = {
    **CLASSIC_REPLAY,
    **CONSUMER_REPLAY,
    **SHARE_REPLAY,
    **STREAMS_REPLAY,
    **OFFSETS_REPLAY,
}
"""Class of a record's key -> function that replays the record, for all records of group shards."""

FEW_READERS: Final = 1_000
"""Maximum number of groups that are notified of a topic change without slices."""
READERS_PER_SLICE: Final = 20_000
NO_READERS: Final[dict[str, None]] = {}


class GroupShard(GroupCore):
    """The groups and committed offsets of one partition of `__consumer_offsets`.

    Args:
        context: time, timers and responses of the shard that runs this machine.
        config: the node's settings.
        topics: the cluster's topics.
        ids: makes the random part of member ids. Each call returns a new version 4 UUID as text.
        max_record_bytes: the maximum size of the record batch of one decision, in bytes.
        consumer: the services that consumer groups need; None: built from `config` and `topics`, for this shard
            alone.
        streams: the services that streams groups need; None: built from `config` and `topics`, for this shard alone.
        share: the services that share groups need; None: built from `config`, for this shard alone.
        meters: count members and measure rebalances of all shards; None: the shard has its own.

    Attributes:
        groups: every group by id; the table also counts the groups in each state.
        offsets: the committed offsets, and the pending offsets of transactions.
        now: the time of the current round.
        completed_rebalances: rebalances of classic groups that ended with an assignment since the load.
        unused_member_ids: assigned member ids of classic groups that no client has used yet, the oldest first.
        changed_topics: names of changed topics. A queued slice will notify the groups that depend on these topics.
        deleted_topics: names and ids of deleted topics whose offsets a queued slice will remove.
        deleted_share_topics: ids of deleted topics that a queued slice will remove from the lists of share groups.
        initial_delays: the initial rebalance delays of streams groups, by group id.
        loaded_version: the version of the metadata at the end of the load. Patterns that were resolved in an older
            version are resolved again.
    """

    __slots__ = (
        "_readers",
        "changed_topics",
        "completed_rebalances",
        "config",
        "consumer",
        "context",
        "deleted_share_topics",
        "deleted_topics",
        "groups",
        "ids",
        "initial_delays",
        "live",
        "loaded_version",
        "max_record_bytes",
        "meters",
        "now",
        "offsets",
        "regex_jobs",
        "share",
        "streams",
        "topics",
        "unused_member_ids",
    )

    def __init__(
        self,
        context: ShardContext,
        config: Config,
        topics: TopicImage,
        ids: Callable[[], str],
        max_record_bytes: int = 1_048_588,
        consumer: ConsumerServices | None = None,
        streams: StreamsServices | None = None,
        share: ShareGroupServices | None = None,
        meters: GroupMeters | None = None,
    ) -> None:
        self.context = context
        self.config = config
        self.topics = topics
        self.ids = ids
        self.max_record_bytes = max_record_bytes
        self.now: Now = context.now
        self.meters = meters or GroupMeters()
        self.groups = GroupTable()
        self.offsets = OffsetStore()
        self.offset_tables = self.offsets.tables(self.groups, self.now, config.offset_metadata_max_bytes)
        self.completed_rebalances = 0
        self.unused_member_ids = UnusedIds()
        self.changed_topics: list[str] = []
        self.deleted_topics: list[tuple[str, bytes]] = []
        self.deleted_share_topics: list[bytes] = []
        self.consumer = ConsumerServices(config, topics) if consumer is None else consumer
        self.share = ShareGroupServices(config) if share is None else share
        self.streams = StreamsServices(config, self.consumer.metadata) if streams is None else streams
        self.initial_delays: dict[str, InitialDelay] = {}
        self.live = False
        self.loaded_version = 0
        self.regex_jobs: set[str] = set()
        self._readers: dict[str, dict[str, None]] = {}  # topic name -> groups that read it

    def get_or_create_group(self, group_id: str) -> Group:
        """Returns the group of that id. If there is none, creates a *simple group*: classic, Empty, without protocol
        type.

        A simple group has offsets but never had members. The group has no record, and exists as long as it has offsets.
        """
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(self, group_id)
        return group

    def topic_subscribed(self, group_id: str, topic: str, subscribed: bool) -> None:
        """Registers that a group of a new protocol depends on a topic (`subscribed` is True), or no longer depends on
        it.
        """
        if subscribed:
            self._readers.setdefault(topic, {})[group_id] = None
            return
        groups = self._readers.get(topic, {})
        groups.pop(group_id, None)
        if not groups:
            self._readers.pop(topic, None)

    def topics_subscribed(self, group_id: str, topics: Iterable[str], subscribed: bool) -> None:
        """Registers that a group of a new protocol depends on many topics (`subscribed` is True), or no longer depends
        on them.
        """
        readers = self._readers
        if not subscribed:
            for topic in topics:
                groups = readers.get(topic)
                if groups is not None:
                    groups.pop(group_id, None)
                    if not groups:
                        del readers[topic]
            return
        for topic in topics:
            groups = readers.get(topic)
            if groups is None:
                readers[topic] = {group_id: None}
            else:
                groups[group_id] = None

    def on_topic_changed(self, topic: str) -> None:
        """Makes the groups that depend on a created, extended or deleted topic check it at their next heartbeat.

        Many groups are notified in slices: one request may change 10,000 topics of 100,000 groups.
        """
        readers = self._readers.get(topic, NO_READERS)
        if len(readers) > FEW_READERS:
            if not self.changed_topics:
                self.context.in_slices(self._notify_readers())
            self.changed_topics.append(topic)
            return
        for group_id in readers:
            group = self.groups.get(group_id)
            if group is not None:
                group.topic_changed()

    def _notify_readers(self) -> Iterator[None]:
        """Notifies the groups that depend on `changed_topics`.

        If most groups depend on several of these topics, notifies each group once.
        """
        changed, self.changed_topics = dict.fromkeys(self.changed_topics), []
        if sum(len(self._readers.get(topic, NO_READERS)) for topic in changed) >= len(self.groups):
            parts = iter([list(self.groups)])
        else:
            parts = (list(self._readers.get(topic, NO_READERS)) for topic in changed)
        count = 0
        for group_ids in parts:
            for group_id in group_ids:
                group = self.groups.get(group_id)
                if group is not None:
                    group.topic_changed()
                count += 1
                if count % READERS_PER_SLICE == 0:
                    yield

    # ---- StateMachine

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        """Applies one record of a new decision or of a load. `REPLAY` has the function for each type of key."""
        if type(value) is LiveValue:
            REPLAY[type(key)](self, offset, producer_id, key, value.value)
            value.follow(self)
        else:
            REPLAY[type(key)](self, offset, producer_id, key, value)

    replay_pending_block = replay_pending_block

    def replay_run(self, run: Run, start: int, stop: int, from_offset: int) -> int:
        """Applies non-transactional batches of the log at recovery; returns the number of records of unknown type."""
        return replay_run(self, run, start, stop, from_offset)

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Ends a transaction: commits or drops its pending offsets."""
        replay_marker(self, offset, producer_id, producer_epoch, commit)

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """Decodes a record; returns None for a type that group shards do not handle."""
        if key is None:
            return None
        typed_key = decode_key(TOPIC_NAME, key)
        if isinstance(typed_key, UnknownRecord) or type(typed_key) not in REPLAY:
            return None
        return typed_key, None if value is None else decode_value(typed_key, value)

    def on_loaded(self) -> None:
        """Initializes the soft state after a load.

        Starts the session of every member with the full session timeout, and the timer of the offset expiration.
        """
        self.live = True
        self.loaded_version = self.consumer.metadata.version()
        self.groups.measure(self.meters, self.now)
        for group in list(self.groups.values()):
            group.on_loaded()
        schedule_expiration(self)

    def on_unloaded(self) -> None:
        """Cancels the timers of all groups."""
        self.live = False
        for group in self.groups.values():
            group.on_unloaded()
        for delay in list(self.initial_delays.values()):
            delay.cancel()
