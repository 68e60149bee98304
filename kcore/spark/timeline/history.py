"""Reads one partition of an internal topic and yields its events. Memory is bounded by the live state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kcore.protocol import DecodeError
from kcore.protocol.records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    UnknownRecord,
    decode_key,
    decode_value,
)
from kcore.protocol.records.share_group_state_partition_metadata import ShareGroupStatePartitionMetadataKey
from kcore.protocol.schema import ZERO_UUID
from kcore.spark.events.event import EventRow
from kcore.spark.state.completeness import Completeness
from kcore.spark.state.group_records import OFFSET_COMMIT_TYPES, Part, parts_of
from kcore.spark.state.producers import marker_of
from kcore.spark.timeline.classic import (
    CLASSIC,
    ClassicGroup,
    first_generation,
    generation_events,
    next_generation,
    read_generation,
    released_by,
)
from kcore.spark.timeline.deliveries import Deliveries
from kcore.spark.timeline.epochs import EpochGroup
from kcore.spark.timeline.event_kinds import TimelineEvent
from kcore.spark.timeline.rebalance import LogPosition
from kcore.spark.timeline.transactions import Transactions
from kcore_ext.group.offsets import OffsetDecoder

PARTS: Final[dict[type, Part]] = parts_of()
"""Key class -> kind of group, and the part of its state that the records with this key class contain."""


class HistoryOptions(NamedTuple):
    """The options of a timeline's events.

    Attributes:
        groups: ids of the groups to include; None: all groups.
        session_timeout_ms: the session timeout of members of consumer groups, a setting that no log contains. With
            it, members that left can be distinguished from members that timed out. None: unknown.
    """

    groups: frozenset[str] | None = None
    session_timeout_ms: int | None = None


class Gone(NamedTuple):
    """A group whose records were just deleted. If a group of another kind follows, the group was migrated."""

    group_id: str
    kind: str
    offset: int
    members: frozenset[str]


class History:
    """The history of one partition of an internal topic: reads its log and yields its events.

    Args:
        topic: the name of an internal topic.
        partition: the number of the partition to read.
        options: the groups to include, and the session timeout of consumer groups.
        cleaned_to: the offset up to which compaction has run, if known.
    """

    def __init__(self, topic: str, partition: int, options: HistoryOptions, cleaned_to: int | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.completeness = Completeness(topic, cleaned_to)
        self.first_offset = -1
        self.next_offset = -1
        self.first_ms = self.last_ms = -1
        self.whole_from: LogPosition | None = None
        self.records = 0
        self.faults = 0
        self._wanted = options
        self._classic: dict[str, ClassicGroup] = {}
        self._epochs: dict[str, EpochGroup] = {}
        self._transactions = Transactions(partition)
        self._deliveries = Deliveries(partition, options.groups)
        self._share_topics: set[tuple[str, bytes]] = set()
        self._pending: dict[int, list[tuple[Any, ...]]] = {}
        self._gone: Gone | None = None
        self._offset = OffsetDecoder().decode

    def change_session_timeout(self, session_timeout_ms: int | None) -> None:
        """Sets the session timeout of members of consumer groups for later events; None: unknown."""
        self._wanted = self._wanted._replace(session_timeout_ms=session_timeout_ms)
        for group in self._epochs.values():
            group.change_session_timeout(session_timeout_ms)

    def events(self, rows: Iterable[EventRow], active_offset: int | None = None) -> Iterator[TimelineEvent]:
        """Reads a log to its end.

        Args:
            rows: the rows in offset order; a row is skipped if an earlier row has the same or a higher offset.
            active_offset: the base offset of the newest segment, if known.
        """
        for row in rows:
            yield from self.process(row)
        yield from self._at_end(active_offset)

    def process(self, row: EventRow) -> Iterator[TimelineEvent]:
        """Reads the next row; yields the events that it completes.

        A row is skipped if an earlier row has the same or a higher offset.
        """
        if row.offset < self.next_offset:
            return
        whole = self._add(row)
        if row.batch_only:
            return
        if row.control:
            yield from self._marker(row)
        elif row.key is None:
            self.faults += 1
        else:
            try:
                yield from self._row(row, row.key, whole)
            except (DecodeError, ValueError):  # malformed bytes, or an unknown state
                self.faults += 1

    def _add(self, row: EventRow) -> bool:
        """Records a row; returns True if the history up to it is complete."""
        completeness = self.completeness
        completeness.add(row, self.next_offset)
        if self.first_offset < 0:
            self.first_offset, self.first_ms = row.offset, row.timestamp_ms
        self.next_offset = row.offset + 1
        self.last_ms = max(self.last_ms, row.timestamp_ms)
        self.records += 1
        cleaned_to = completeness.cleaned_to
        whole = not completeness.gaps or (
            self.topic != SHARE_GROUP_STATE and cleaned_to is not None and cleaned_to <= row.offset
        )
        if not whole:
            self.whole_from = None
        elif self.whole_from is None:
            self.whole_from = LogPosition(row.offset, row.timestamp_ms)
        return whole

    def _row(self, row: EventRow, key: bytes, whole: bool) -> Iterator[TimelineEvent]:
        if self.topic == CONSUMER_OFFSETS:
            if key[:2] in OFFSET_COMMIT_TYPES:
                return self._commit(row, key, whole)
            return self._group_record(row, key, whole)
        if self.topic == TRANSACTION_STATE:
            typed = decode_key(TRANSACTION_STATE, key)
            if not isinstance(typed, UnknownRecord):
                value = decode_value(typed, row.value)
                return self._transactions.replay(typed, value, LogPosition(row.offset, row.timestamp_ms), whole)
        if self.topic == SHARE_GROUP_STATE:
            typed = decode_key(SHARE_GROUP_STATE, key)
            if not isinstance(typed, UnknownRecord):
                value = decode_value(typed, row.value)
                return self._deliveries.replay(typed, value, LogPosition(row.offset, row.timestamp_ms), whole)
        return iter(())

    # ---- commits

    def _commit(self, row: EventRow, key: bytes, whole: bool) -> Iterator[TimelineEvent]:
        typed: tuple[Any, Any] | None = self._offset(key, row.value)
        if typed is None:  # the fast decoder does not handle these bytes
            key_fields: Any = decode_key(CONSUMER_OFFSETS, key)
            typed = key_fields, decode_value(key_fields, row.value)
        position: Any = typed[0]
        value: Any = typed[1]
        group_id = position.group
        if self._wanted.groups is not None and group_id not in self._wanted.groups:
            return
        group = self._epochs.get(group_id) or self._classic.get(group_id)
        if value is None:
            if group is not None:
                group.last_commits.deleted(position.topic, position.partition)
            return
        committed = value.committed_offset if hasattr(value, "committed_offset") else value.offset
        at = (self.partition, group_id, position.topic, position.partition, row.offset, row.timestamp_ms, committed)
        if row.transactional:
            self._pending.setdefault(row.producer_id, []).append((*at, whole))
            return
        if group is not None:
            topic_id = getattr(value, "topic_id", ZERO_UUID)
            topic_hex = None if topic_id == ZERO_UUID else topic_id.hex()
            group.last_commits.committed(position.topic, topic_hex, position.partition, row.timestamp_ms)
        yield "commits", (*at, "plain", whole)

    def _marker(self, row: EventRow) -> Iterator[TimelineEvent]:
        marker = marker_of(row)
        if marker is not None:
            yield from self._decided(row.producer_id, "transactional" if marker[0] else "aborted")

    def _decided(self, producer_id: int, kind: str) -> Iterator[TimelineEvent]:
        for *at, whole in self._pending.pop(producer_id, ()):
            yield "commits", (*at, kind, whole)

    # ---- groups

    def _group_record(self, row: EventRow, key: bytes, whole: bool) -> Iterator[TimelineEvent]:
        typed: Any = decode_key(CONSUMER_OFFSETS, key)
        if isinstance(typed, UnknownRecord):
            return
        parts = PARTS.get(type(typed))
        group_id: str = typed.group if parts is None else typed.group_id
        if self._wanted.groups is not None and group_id not in self._wanted.groups:
            return
        value = decode_value(typed, row.value)
        position = LogPosition(row.offset, row.timestamp_ms)
        if parts is None:
            yield from self._generation(group_id, value, position, whole)
        else:
            if isinstance(typed, ShareGroupStatePartitionMetadataKey):
                yield from self._listed(group_id, value)
            yield from self._epoch_record(group_id, *parts, typed, value, position, whole)

    def _listed(self, group_id: str, value: Any) -> Iterator[TimelineEvent]:
        """Yields an event with the name of each topic that a share group lists, once per topic."""
        for topic in () if value is None else (*value.initializing_topics, *value.initialized_topics):
            if (group_id, topic.topic_id) not in self._share_topics:
                self._share_topics.add((group_id, topic.topic_id))
                yield "share_topics", (self.partition, group_id, topic.topic_id.hex(), topic.topic_name)

    def _inherited(self, group_id: str, kind: str, position: LogPosition) -> frozenset[str] | None:
        """Returns the members of a deleted group, if the previous record deleted a group with this id and another kind;
        else None.
        """
        gone, self._gone = self._gone, None
        if gone is None or gone.group_id != group_id or gone.kind == kind or gone.offset + 1 != position.offset:
            return None
        return gone.members

    def _generation(self, group_id: str, value: Any, position: LogPosition, whole: bool) -> Iterator[TimelineEvent]:
        group = self._classic.get(group_id)
        if value is None:
            if group is not None:
                del self._classic[group_id]
                self._gone = Gone(group_id, CLASSIC, position.offset, frozenset(group.last.members))
            return
        now = read_generation(value, position)
        if group is None:
            change = first_generation(group_id, now, whole, self._inherited(group_id, CLASSIC, position))
        else:
            change = next_generation(group_id, group, now, whole)
        if change is not None:
            yield from generation_events(self.partition, change, group, now)
        if group is None:
            self._classic[group_id] = ClassicGroup(now)
        else:
            group.released = released_by(group.last, now)
            group.last = now

    def _epoch_record(
        self, group_id: str, kind: str, part: str, key: Any, value: Any, position: LogPosition, whole: bool
    ) -> Iterator[TimelineEvent]:
        group = self._epochs.get(group_id)
        if group is None or group.kind != kind:
            if value is None:
                return  # deletes records that are not in the log
            if group is not None:
                yield from group.end("deleted", position)
            inherited = self._inherited(group_id, kind, position)
            group = EpochGroup(group_id, kind, self.partition, self._wanted.session_timeout_ms, inherited)
            self._epochs[group_id] = group
        if part == "Metadata" and value is None:
            members = frozenset() if group.step is None else frozenset(group.step.left)
            self._gone = Gone(group_id, kind, position.offset, members)
            del self._epochs[group_id]
        yield from group.replay(part, key, value, position, whole)

    # ---- the end

    def _at_end(self, active_offset: int | None) -> Iterator[TimelineEvent]:
        for group in self._epochs.values():
            yield from group.end_step(self.whole_from is not None)
            yield from group.end("open", None)
        for producer_id in list(self._pending):
            yield from self._decided(producer_id, "pending")
        yield from self._transactions.at_end(self.last_ms)
        completeness = self.completeness
        completeness.at_end(active_offset, max(0, self.next_offset))
        whole_from = self.whole_from
        if whole_from is not None:
            offset: int | None = whole_from.offset
        else:
            offset = None if self.topic == SHARE_GROUP_STATE else completeness.cleaned_to
        row = (
            self.partition,
            self.topic,
            self.first_offset,
            max(0, self.next_offset),
            self.first_ms,
            self.last_ms,
            offset,
            None if whole_from is None else whole_from.timestamp_ms,
            self.records,
            self.faults,
        )
        yield "logs", row
