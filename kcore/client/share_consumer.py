"""The client side of share groups (KIP-932), without I/O: the membership, and the share session with one broker."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple

from kcore.errors import ConnectionClosedError, KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages import share_acknowledge, share_fetch
from kcore.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kcore.protocol.messages.share_fetch import ShareFetchRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
CLOSE_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFFFFFF
MAX_BYTES: Final = 50 << 20
RECORD_LIMIT: Final = 1
"""The acquire mode in which the broker acquires at most `max_records` records (KIP-1206)."""
BACKOFF_MS, MAX_BACKOFF_MS = 100, 1_000
DEFAULT_INTERVAL_MS = 5_000
"""The heartbeat interval in ms if a response has none."""

REJOIN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors of a heartbeat after which the member joins again."""


class Acknowledgement(IntEnum):
    """The acknowledgement types of ShareFetch and ShareAcknowledge."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class SharePartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: bytes
    partition: int


class Acquired(NamedTuple):
    """A range of offsets that a broker has locked for the member, with the delivery count of its records."""

    first: int
    last: int
    delivery_count: int


class Acknowledged(NamedTuple):
    """A range of offsets, and the type of its acknowledgement."""

    first: int
    last: int
    kind: int


class ShareState(StrEnum):
    """The states of a membership."""

    JOINING = "joining"
    STABLE = "stable"
    FAILED = "failed"
    LEFT = "left"


class ShareMembership:
    """A member of a share group. A driver sends the requests that `request` returns, and passes the results back.

    While the assignment is empty, the member repeats its heartbeat with a growing pause, from 0.1 seconds up to the
    heartbeat interval. A new group assigns partitions only after it has initialized their state.

    Args:
        group_id: the id of the group.
        topics: the topics to subscribe to.
        rack: the member's rack, or None.

    Attributes:
        member_id: the member's id, which the client chooses.
        epoch: the member epoch.
        state: the present state of the membership.
        assignment: the partitions that the coordinator has assigned to the member.
        version: counts changes of the assignment.
        heartbeat_at_ms: the time of the next heartbeat.
        error: the error that ended the membership, or None.
    """

    def __init__(self, group_id: str, topics: Iterable[str], rack: str | None = None) -> None:
        self.group_id = group_id
        self.topics = list(topics)
        self.rack = rack
        self.member_id = str(uuid.uuid4())
        self.epoch = JOIN_EPOCH
        self.state = ShareState.JOINING
        self.assignment: frozenset[SharePartition] = frozenset()
        self.version = 0
        self.heartbeat_at_ms = 0
        self.error: Exception | None = None
        self._sent = False
        self._lost = False  # a lost response may have had an assignment
        self._attempts = 0

    def request(self) -> ShareGroupHeartbeatRequest:
        """Returns the next heartbeat; a heartbeat with epoch 0 joins the group.

        After a failure, the heartbeat has all fields again, so that the coordinator repeats the assignment. In response
        to other heartbeats, the coordinator sends the assignment only after a change.
        """
        joins = self.epoch == JOIN_EPOCH or (self._lost and self.epoch != LEAVE_EPOCH)
        self._sent = True
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=self.rack if joins else None,
            subscribed_topic_names=self.topics if joins else None,
        )

    def received(self, response: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        """Applies the response of a heartbeat."""
        code = response.error_code
        if not code:
            self._succeeded(response, now_ms)
        elif code in REJOIN and self.epoch != JOIN_EPOCH:
            self.state = ShareState.JOINING
            self.epoch = JOIN_EPOCH
            self._assign(frozenset())
            self.heartbeat_at_ms = now_ms
        else:
            self.failed(KafkaError.of(code, response.error_message), now_ms)

    def _succeeded(self, response: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        if self.state is ShareState.JOINING:
            self._attempts = 0
        self._lost = False
        self.state = ShareState.STABLE
        self.epoch = response.member_epoch
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            self._assign(frozenset(SharePartition(topic.topic_id, n) for topic in topics for n in topic.partitions))
        pause_ms = response.heartbeat_interval_ms if response.heartbeat_interval_ms > 0 else DEFAULT_INTERVAL_MS
        if self.assignment:
            self._attempts = 0
        else:
            pause_ms = min(pause_ms, BACKOFF_MS << min(self._attempts, 10))
            self._attempts += 1
        self.heartbeat_at_ms = now_ms + pause_ms

    def _assign(self, partitions: frozenset[SharePartition]) -> None:
        if partitions != self.assignment:
            self.assignment = partitions
            self.version += 1

    def failed(self, error: Exception, now_ms: int) -> None:
        """Handles a heartbeat that failed: repeats it later, or ends the membership if a repetition cannot help."""
        self._lost = True
        network = isinstance(error, ConnectionClosedError | TimeoutError)
        if not network and not (isinstance(error, KafkaError) and error.retriable):
            self.state = ShareState.FAILED
            self.error = error
            self._assign(frozenset())
            return
        self.heartbeat_at_ms = now_ms + backoff_ms(self._attempts)
        self._attempts += 1

    def leave(self) -> ShareGroupHeartbeatRequest | None:
        """Ends the membership.

        Returns the heartbeat that leaves the group; None if the client is not a member of the group.
        """
        joined = self._sent and self.state in (ShareState.JOINING, ShareState.STABLE)
        self.state = ShareState.LEFT
        self._assign(frozenset())
        if not joined:
            return None
        self.epoch = LEAVE_EPOCH
        return self.request()


class ShareSession:
    """The share session of a member with one broker. The driver sends one request at a time.

    Args:
        group_id: the id of the group.
        member_id: the id of the member.

    Attributes:
        number: the number of the session; records of earlier sessions cannot be acknowledged.
        is_open: True if the broker may hold records for this session.
        must_close: True if an earlier session must be closed before the next ShareFetch.
        pending: acknowledgements that the next ShareFetch carries.
    """

    def __init__(self, group_id: str, member_id: str) -> None:
        self._group_id = group_id
        self._member_id = member_id
        self._epoch = 0
        self._partitions: frozenset[SharePartition] = frozenset()
        self.number = 0
        self.is_open = False
        self.must_close = False
        self.pending: dict[SharePartition, list[Acknowledged]] = {}

    def add(self, partition: SharePartition, first: int, kind: Acknowledgement, last: int | None = None) -> None:
        """Adds an acknowledgement. The next ShareFetch, or the request that ends the session, carries it.

        Args:
            partition: the partition of the acknowledged records.
            first: the first acknowledged offset.
            kind: the type of the acknowledgement; GAP for offsets without a record.
            last: the last acknowledged offset; None: `first`.
        """
        self.pending.setdefault(partition, []).append(Acknowledged(first, first if last is None else last, kind))

    def fetch(self, assigned: frozenset[SharePartition], max_records: int, wait_ms: int) -> ShareFetchRequest:
        """Builds the next ShareFetch, with the pending acknowledgements.

        Args:
            assigned: the assigned partitions that the broker leads.
            max_records: the largest number of records to acquire.
            wait_ms: the time for which the broker waits for a record.
        """
        listed = (assigned - self._partitions) | self.pending.keys()
        forgotten = (self._partitions | self.pending.keys()) - assigned
        pending = self.pending
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=RECORD_LIMIT,
            topics=[
                share_fetch.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_fetch.FetchPartition(
                            partition_index=number,
                            acknowledgement_batches=[
                                share_fetch.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=[kind]
                                )
                                for first, last, kind in _joined(pending.get(SharePartition(topic_id, number), ()))
                            ],
                        )
                        for number in numbers
                    ],
                )
                for topic_id, numbers in _by_topic(listed)
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in _by_topic(forgotten)
            ],
        )
        self.is_open = True
        self.pending = {}
        self._partitions = assigned
        return request

    def acknowledge(
        self, acknowledged: Mapping[SharePartition, Iterable[Acknowledged]], *, renews: bool = False
    ) -> ShareAcknowledgeRequest:
        """Builds a ShareAcknowledge; `renews` is True for acknowledgements of the type RENEW (KIP-1222)."""
        return ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            is_renew_ack=renews,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=number,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=[kind]
                                )
                                for first, last, kind in _joined(acknowledged[SharePartition(topic_id, number)])
                            ],
                        )
                        for number in numbers
                    ],
                )
                for topic_id, numbers in _by_topic(acknowledged)
            ],
        )

    def take_pending(self) -> dict[SharePartition, list[Acknowledged]]:
        """Takes the pending acknowledgements."""
        pending, self.pending = self.pending, {}
        return pending

    def close(self) -> ShareAcknowledgeRequest:
        """Builds the request that ends the session; the broker then releases all records without an acknowledgement."""
        pending = self.take_pending()
        self.reset()
        self._epoch = CLOSE_EPOCH
        request = self.acknowledge(pending)
        self._epoch = 0
        return request

    def succeeded(self) -> None:
        """Moves to the next epoch after a response without an error."""
        self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1

    def reset(self, *, response_lost: bool = False) -> None:
        """Makes the next ShareFetch begin a new session. Pending acknowledgements are dropped with the old session.

        Args:
            response_lost: True if the broker may still have the old session, so that the client must close it first.
        """
        self._epoch = 0
        self._partitions = frozenset()
        self.pending = {}
        self.number += 1
        self.is_open = self.must_close = response_lost


def _by_topic(partitions: Iterable[SharePartition]) -> list[tuple[bytes, list[int]]]:
    """Groups partition numbers by topic id, sorted."""
    grouped: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        grouped.setdefault(topic_id, []).append(number)
    return list(grouped.items())


def _joined(ranges: Iterable[Acknowledged]) -> Iterator[Acknowledged]:
    """Sorts ranges, and joins adjacent ranges of one type.

    If an offset has several acknowledgements, the first acknowledgement counts.
    """
    joined: Acknowledged | None = None
    for first, last, kind in sorted(ranges, key=lambda each: each.first):
        if joined is None:
            joined = Acknowledged(first, last, kind)
            continue
        begin = max(first, joined.last + 1)
        if begin > last:
            continue
        if begin == joined.last + 1 and kind == joined.kind:
            joined = joined._replace(last=last)
        else:
            yield joined
            joined = Acknowledged(begin, last, kind)
    if joined is not None:
        yield joined


def count_accepted(request: ShareFetchRequest | ShareAcknowledgeRequest) -> int:
    """Counts the records that a request acknowledges with the type ACCEPT."""
    return sum(
        batch.last_offset - batch.first_offset + 1
        for topic in request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
        if batch.acknowledge_types[0] == Acknowledgement.ACCEPT
    )


def acquired_ranges(row: Any) -> list[Acquired]:
    """Returns the acquired offsets of a fetched partition, in disjoint ascending ranges.

    A range may be longer than the number of fetched records, because the log need not have a record at each offset.
    """
    ranges: list[Acquired] = []
    begin = 0
    for entry in sorted(row.acquired_records, key=lambda each: each.first_offset):
        first = max(entry.first_offset, begin)
        if first <= entry.last_offset:
            ranges.append(Acquired(first, entry.last_offset, entry.delivery_count))
            begin = entry.last_offset + 1
    return ranges


def backoff_ms(attempt: int) -> int:
    """Returns the pause in ms before a repetition: exponential, with 20 % jitter."""
    return int(min(MAX_BACKOFF_MS, BACKOFF_MS * 2 ** min(attempt, 10)) * random.uniform(0.8, 1.2))
