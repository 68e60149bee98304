"""Logs that tests write by hand, and their events in comparable form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kcore.protocol.consumer_protocol import Assignment, Subscription
from kcore.protocol.consumer_protocol import TopicPartition as Part
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.protocol.schema import ZERO_UUID
from kcore.spark.events.event import EventRow
from kcore.spark.timeline.event_kinds import EVENT_KINDS
from kcore.spark.timeline.history import History, HistoryOptions

SECOND = 1_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Log:
    """One partition of an internal topic, written record by record. The time advances only on request."""

    def __init__(self, topic: str = CONSUMER_OFFSETS) -> None:
        self.topic = topic
        self.rows: list[EventRow] = []
        self.now_ms = 0
        self.next_offset = 0

    def passes(self, ms: int) -> Log:
        """Advances the time."""
        self.now_ms += ms
        return self

    def loses(self, count: int) -> Log:
        """Skips offsets, as if compaction had removed the records."""
        self.next_offset += count
        return self

    def put(self, key: Any, value: Any, version: int = 0, **facts: Any) -> Log:
        """Writes a record."""
        encoded = None if value is None else value.encode_value(version)
        return self.put_raw(key.encode_key(), encoded, **facts)

    def put_raw(self, key: bytes | None, value: bytes | None, **facts: Any) -> Log:
        """Writes a record as bytes."""
        self.rows.append(EventRow(key, value, self.topic, 0, self.next_offset, self.now_ms, **facts))
        self.next_offset += 1
        return self

    def ends(self, producer_id: int, commit: bool) -> Log:
        """Writes a transaction marker."""
        key = b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00")
        return self.put_raw(key, bytes(6), producer_id=producer_id, producer_epoch=0, transactional=True, control=True)

    def commits(
        self,
        group: str,
        partition: int,
        offset: int,
        *,
        producer_id: int = -1,
        topic: str = "t",
        topic_id: bytes = ZERO_UUID,
    ) -> Log:
        """Writes a committed offset."""
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=self.now_ms, topic_id=topic_id)
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        return self.put(key, value, 4, producer_id=producer_id, transactional=producer_id >= 0)

    def generation(
        self,
        number: int,
        members: Mapping[str, Sequence[int]],
        *,
        group: str = "g",
        sync_ms: int = 0,
        topics: Mapping[str, Sequence[str]] | None = None,
        instances: Mapping[str, str] | None = None,
        protocol: str = "range",
        leader: str | None = None,
        opaque: bool = False,
    ) -> Log:
        """Writes a generation of a classic group.

        Args:
            number: the generation.
            members: empty for an empty generation.
            group: the group.
            sync_ms: the time between the end of the join phase and the record.
            topics: member id -> its subscription; a member that is not named subscribes to `t`.
            instances: member id -> instance id of static members.
            protocol: the assignor.
            leader: the member id of the leader; None: the first member.
            opaque: True for assignments of an unknown protocol.
        """
        read, static = topics or {}, instances or {}
        entries = [
            MemberMetadata(
                member_id=member_id,
                group_instance_id=static.get(member_id),
                client_id="client",
                client_host="/h",
                rebalance_timeout=REBALANCE_MS,
                session_timeout=SESSION_MS,
                subscription=Subscription(topics=list(read.get(member_id, ("t",)))).encode_versioned(1),
                assignment=b"\xff\xff?" if opaque else assigned(parts),
            )
            for member_id, parts in members.items()
        ]
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=number,
            protocol=protocol if members else None,
            leader=(leader or next(iter(members))) if members else None,
            current_state_timestamp=self.now_ms - sync_ms,
            members=entries,
        )
        return self.put(GroupMetadataKey(group=group), value, 3)


def assigned(partitions: Iterable[int], topic: str = "t") -> bytes:
    """Returns an encoded consumer assignment."""
    return Assignment(assigned_partitions=[Part(topic=topic, partitions=list(partitions))]).encode_versioned(1)


def history(
    log: Log, wanted: HistoryOptions | None = None, cleaned_to: int | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Returns all events of a log, by kind, as dicts."""
    return history_of(log.topic, log.rows, wanted, cleaned_to)


def history_of(
    topic: str, rows: Iterable[EventRow], wanted: HistoryOptions | None = None, cleaned_to: int | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Returns all events of rows, by kind, as dicts."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in EVENT_KINDS}
    for kind, row in History(topic, 0, wanted or HistoryOptions(), cleaned_to).events(rows):
        found[kind].append(dict(zip([name for name, _, _ in EVENT_KINDS[kind]], row, strict=True)))
    return found


def brief(facts: dict[str, list[dict[str, Any]]], *columns: str) -> list[tuple[Any, ...]]:
    """Returns the main columns of the rebalances."""
    return [tuple(row[column] for column in columns) for row in facts["rebalances"]]
