"""All share partitions of a node, its share sessions, and the events that end them (KIP-932)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from kcore.broker.share.counters import ShareCounters
from kcore.broker.share.endings import Endings
from kcore.broker.share.sessions import SessionKey, ShareSession, ShareSessions, TopicIdPartition
from kcore.broker.share.settings import read_settings
from kcore.broker.share.share_partition import SharePartition
from kcore.broker.share.states import SharePartitionState
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import Partitions
    from kcore.broker.share.settings import GroupSettings, ShareSettings
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.sliced import Work
    from kcore.runtime.slices import Slices
    from kcore.runtime.topics import TopicInfo
    from kcore.share.persister import Persister
    from kcore_ext.runtime.purgatory import Purgatory
    from kcore_ext.runtime.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

SHARE_VERSION = "share.version"

RELEASE_COST_US = 50
"""The cost of releasing the records that a member has acquired in one share partition, in microseconds."""
DROP_COST_US = 20
"""The cost of dropping one share partition, in microseconds."""
CHECKS_A_STEP = 100
"""Number of share partitions that one step examines, if it drops none of them."""
CHECKS_COST_US = 20
"""The cost of examining `CHECKS_A_STEP` share partitions, in microseconds."""

WARNING_INTERVAL_MS = 10_000
"""Minimum time between two warnings about failed loads: one request can cause thousands of them."""


class SharePartitions(MetadataListener):
    """The share partitions that this node leads, by group.

    A share partition is loaded by its first fetch. It leaves the table when its group becomes empty, its topic is
    deleted, its load fails or a write is fenced.

    Args:
        partitions: the node's partitions.
        persister: the durable state of share partitions.
        settings: the settings of groups.
        purgatory: contains the parked fetches.
        now: the clock, which the driver reads once for each round of requests.
        config: the node's settings.

    Attributes:
        by_group: the share partitions by group and partition. `by_group` and `cached_settings` are never replaced by
            other dictionaries, because compiled code refers to them.
        cached_settings: the settings of groups that have share partitions.
        partitions: the node's partitions.
        persister: the durable state of share partitions.
        purgatory: contains the parked fetches, under their partitions and share partitions.
        now: the clock, which the driver reads once for each round of requests.
        sessions: the share sessions; a server ends the sessions of a connection when the connection ends.
        releasing: members whose session has ended, while its records are being released in slices.
        counters: totals for metrics.
    """

    __slots__ = (
        "_deleted_topics",
        "_drops_deleted",
        "_endings",
        "_next_warning_ms",
        "_omitted_warnings",
        "_settings",
        "by_group",
        "cached_settings",
        "counters",
        "now",
        "partitions",
        "persister",
        "purgatory",
        "releasing",
        "sessions",
    )

    def __init__(
        self,
        partitions: Partitions,
        persister: Persister,
        settings: GroupSettings,
        purgatory: Purgatory,
        now: Now,
        config: Config,
    ) -> None:
        self.partitions = partitions
        self.persister = persister
        self.purgatory = purgatory
        self.now = now
        self.sessions = ShareSessions(
            config.group_share_max_share_sessions, config.kcore_max_fetch_session_partitions, self._release
        )
        self.releasing: set[SessionKey] = set()
        self._endings = Endings(partitions.slices, now)
        self._deleted_topics: set[bytes] = set()
        self._drops_deleted = False
        self.counters = ShareCounters()
        self._settings = settings
        self.cached_settings: dict[str, ShareSettings] = {}
        self.by_group: dict[str, dict[TopicIdPartition, SharePartition]] = {}
        self._next_warning_ms = 0
        self._omitted_warnings = 0

    def __iter__(self) -> Iterator[SharePartition]:
        for group in list(self.by_group.values()):
            yield from list(group.values())

    def __len__(self) -> int:
        return sum(map(len, self.by_group.values()))

    @property
    def wheel(self) -> TimerWheel:
        """The node's timers."""
        return self.purgatory.wheel

    @property
    def slices(self) -> Slices | None:
        """Runs long work in slices; None without an event loop."""
        slices = self.partitions.slices
        return slices if slices.requests.enabled else None

    # ---- share partitions

    def get(self, group_id: str, key: TopicIdPartition) -> SharePartition | None:
        """Returns a share partition in any state; None if no fetch has loaded it.

        A share partition whose change was interrupted by an exception is dropped, so that it is loaded again.
        """
        group = self.by_group.get(group_id)
        share_partition = None if group is None else group.get(key)
        if share_partition is not None and share_partition.interrupted:
            self.drop(share_partition)
            return None
        return share_partition

    def loaded(self, group_id: str, partition: Partition) -> SharePartition:
        """Returns a share partition. If it is not in the table, adds it and starts its load."""
        key = TopicIdPartition(partition.topic_id, partition.index)
        share_partition = self.get(group_id, key)
        if share_partition is None:
            share_partition = SharePartition(group_id, partition, self)
            self.by_group.setdefault(group_id, {})[key] = share_partition
            share_partition.load()
        return share_partition

    def load_failed(self, share_partition: SharePartition, error: ErrorCode) -> None:
        """Logs a warning, at most once in `WARNING_INTERVAL_MS`. Clients could otherwise fill the log."""
        now_ms = self.now.now_ms
        if now_ms < self._next_warning_ms:
            self._omitted_warnings += 1
            return
        more = f" ({self._omitted_warnings} more since the last warning)" if self._omitted_warnings else ""
        logger.warning(
            "share partition %r: cannot load its state; consumers get %s%s; if this repeats, look for errors in the "
            "log of the share coordinator's node",
            share_partition,
            error.name,
            more,
        )
        self._next_warning_ms = now_ms + WARNING_INTERVAL_MS
        self._omitted_warnings = 0

    def forget(self, share_partition: SharePartition) -> None:
        """Removes a share partition from the table."""
        group = self.by_group.get(share_partition.group_id)
        partition = share_partition.partition
        key = TopicIdPartition(partition.topic_id, partition.index)
        if group is not None and group.get(key) is share_partition:
            del group[key]
            if not group:
                del self.by_group[share_partition.group_id]
                self.cached_settings.pop(share_partition.group_id, None)

    def drop(self, share_partition: SharePartition) -> None:
        """Removes a share partition from the table and fences it, unless its load has failed."""
        self.forget(share_partition)
        if share_partition.state is not SharePartitionState.FAILED:
            share_partition.fence()

    def progressed(self, share_partition: SharePartition) -> None:
        """Retries the fetches that wait for a share partition."""
        self.purgatory.check_and_complete(share_partition)

    def settings_of(self, group_id: str) -> ShareSettings:
        """Returns the current settings of a group."""
        settings = self.cached_settings.get(group_id)
        if settings is None:
            settings = read_settings(self._settings, group_id)
            if group_id in self.by_group:
                self.cached_settings[group_id] = settings
        return settings

    # ---- events of the group coordinator

    def member_left(self, group_id: str, member_id: str, last: bool) -> None:
        """Schedules the end of the session of a member that has left its group, or whose heartbeats stopped.

        If `last` is True, the group has no members left. Its share partitions are then dropped, because clients can
        change the offsets of an empty group.
        """
        self.wheel.add(self.now.now_ms, partial(self._left, group_id, member_id, last))

    def _left(self, group_id: str, member_id: str, last: bool) -> None:
        self.sessions.close(SessionKey(group_id, member_id))
        if last:
            self._give_up(group_id)

    def _give_up(self, group_id: str) -> None:
        """Drops the share partitions of a group, after the sessions that ended earlier have released their records."""
        self._endings.add(self._dropping(group_id), len(self.by_group.get(group_id, ())), f"group {group_id!r}")

    def _dropping(self, group_id: str) -> Work:
        for share_partition in list(self.by_group.get(group_id, {}).values()):
            self.drop(share_partition)
            yield DROP_COST_US

    def _release(self, session: ShareSession) -> None:
        self.releasing.add(session.key)
        self._endings.add(self._releasing(session), len(session.partitions), session.key)

    def _releasing(self, session: ShareSession) -> Work:
        group_id, member_id = session.key
        try:
            for key in session.partitions:
                share_partition = self.get(group_id, key)
                if share_partition is not None:
                    share_partition.release_records(member_id)
                yield RELEASE_COST_US
        finally:
            self.releasing.discard(session.key)

    # ---- events of the metadata

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Gives up the share partitions of a deleted topic, together with the share partitions of topics that are
        deleted soon after.
        """
        self._deleted_topics.add(topic.topic_id)
        if not self._drops_deleted:
            self._drops_deleted = True
            self._endings.add(self._dropping_deleted(), len(self), "deleted topics")

    def _dropping_deleted(self) -> Work:
        """Drops the share partitions of deleted topics in slices.

        No fetch finds these share partitions in the meantime, because their topics are unknown.
        """
        try:
            while self._deleted_topics:
                deleted, self._deleted_topics = self._deleted_topics, set()
                for group in list(self.by_group.values()):
                    for number, (key, share_partition) in enumerate(list(group.items()), 1):
                        if key.topic_id in deleted:
                            self.drop(share_partition)
                            yield DROP_COST_US
                        elif number % CHECKS_A_STEP == 0:
                            yield CHECKS_COST_US
                    yield 1
        finally:
            self._drops_deleted = False

    def resigned(self, topic_id: bytes, partition: int) -> None:
        """Gives up the share partitions of a partition that another node leads from now on."""
        key = TopicIdPartition(topic_id, partition)
        for group in list(self.by_group.values()):
            share_partition = group.get(key)
            if share_partition is not None:
                self.drop(share_partition)

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Reads the settings of groups again."""
        self.cached_settings.clear()

    def on_feature_changed(self, name: str, level: int) -> None:
        """Ends all sessions and share partitions when share groups are disabled."""
        if name == SHARE_VERSION and not level:
            self.sessions.clear()
            for group_id in list(self.by_group):
                self._give_up(group_id)
