"""A member of a classic consumer group: joins, assigns partitions if it leads, sends heartbeats, commits and leaves.

It runs on the caller's thread: the caller invokes `beat` regularly between reads, and rejoins when `beat` returns
False.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kcore.assignors import Member as Subscriber
from kcore.assignors import Topics, get
from kcore.client.cluster import Cluster
from kcore.client.connection import Connection
from kcore.errors import ConnectionClosedError, KcoreError
from kcore.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kcore.protocol.error_codes import COORDINATOR_AWAY, ErrorCode, code_name
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

ASSIGNOR = "range"
SESSION_MS = 45_000
REBALANCE_MS = 60_000
BEAT_S = 3.0
TRIES = 100
PAUSE_S = 0.2
OFFSETS_VERSION = 9  # the newest version that addresses topics by name
COMMIT_VERSION = 9

FORGOTTEN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
"""Errors after which the member has to join as a new member."""

REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
"""Errors after which the member stays in the group, but has to rejoin for a rebalance."""


class GroupMember:
    """A member of a classic consumer group.

    Args:
        cluster: the brokers.
        group_id: the group.
        topics: the subscribed topics.

    Attributes:
        owned: the assigned partitions, (topic, partition), as of the last `join`.
    """

    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str]) -> None:
        self.group_id = group_id
        self.topics = list(topics)
        self.owned: list[tuple[str, int]] = []
        self._cluster = cluster
        self._connection: Connection | None = None
        self._member_id = ""
        self._generation_id = -1
        self._beat_s = 0.0

    def join(self) -> None:
        """Joins or rejoins the group; `owned` contains the new assignment.

        Raises:
            KcoreError: the group refuses the member, or its coordinator stays unavailable.
        """
        for _ in range(TRIES):
            joined = self._send(self._join_request())
            code = joined.error_code
            if code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
                continue
            if not code:
                self._member_id, self._generation_id = joined.member_id, joined.generation_id
                synced = self._send(self._sync_request(joined))
                code = synced.error_code
                if not code:
                    self.owned = _partitions_of(synced.assignment)
                    self._beat_s = time.monotonic()
                    return
            self._recover(code)
        raise KcoreError(f"cannot join group {self.group_id!r}")

    def beat(self) -> bool:
        """Sends a heartbeat if one is due. Returns False if the member has to rejoin."""
        now_s = time.monotonic()
        if now_s - self._beat_s < BEAT_S:
            return True
        self._beat_s = now_s
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self._generation_id, member_id=self._member_id)
        return self._still_in(self._send(request).error_code)

    def committed(self) -> dict[tuple[str, int], int]:
        """Returns the committed offsets of its partitions, without partitions that have none."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in self.owned:
            by_topic.setdefault(topic, []).append(partition)
        asked = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=asked)])
        for _ in range(TRIES):
            (answer,) = self._send(request, OFFSETS_VERSION).groups
            if not answer.error_code:
                return {
                    (topic.name, part.partition_index): part.committed_offset
                    for topic in answer.topics
                    for part in topic.partitions
                    if part.committed_offset >= 0
                }
            self._recover(answer.error_code)
        raise KcoreError(f"cannot fetch the offsets of group {self.group_id!r}")

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Commits the next offsets to read.

        Returns False if the member has to rejoin and read from the committed offsets.
        """
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            by_topic.setdefault(topic, []).append(part)
        if not by_topic:
            return True
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self._generation_id,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
        )
        answer = self._send(request, COMMIT_VERSION)
        codes = {part.error_code for topic in answer.topics for part in topic.partitions} - {0}
        return self._still_in(min(codes, default=0))

    def leave(self) -> None:
        """Leaves the group; the other members take over its partitions immediately."""
        if self._member_id:
            self._send(LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self._member_id)]))
            self._member_id, self.owned = "", []

    def _still_in(self, code: int) -> bool:
        if not code:
            return True
        self._recover(code)
        return False

    def _recover(self, code: int) -> None:
        """Prepares a retry after an error.

        Raises:
            KcoreError: a retry cannot help.
        """
        if code in FORGOTTEN:
            self._member_id, self._generation_id = "", -1
        elif code in COORDINATOR_AWAY:
            self._connection = None
            time.sleep(PAUSE_S)
        elif code not in REJOIN:
            raise KcoreError(f"group {self.group_id!r}: {code_name(code)}")

    def _send(self, request: Any, version: int | None = None) -> Any:
        for attempt in range(TRIES):
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._cluster.coordinator(self.group_id)
                return self._connection.send(request, version)
            except ConnectionClosedError:
                raise
            except KcoreError:  # no coordinator yet
                if attempt == TRIES - 1:
                    raise
                time.sleep(PAUSE_S)
        raise AssertionError("every attempt returns or raises")

    def _join_request(self) -> JoinGroupRequest:
        subscription = ConsumerProtocolSubscription(topics=self.topics).encode_versioned(1)
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=subscription)],
        )

    def _sync_request(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        given: list[SyncGroupRequestAssignment] = []
        if joined.leader == self._member_id:
            given = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(owned))
                for member_id, owned in self._share_out(joined.members).items()
            ]
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self._generation_id,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=given,
        )

    def _share_out(self, members: Iterable[Any]) -> Mapping[str, Mapping[str, Sequence[int]]]:
        subscribers = [
            Subscriber(
                member.member_id,
                list(ConsumerProtocolSubscription.decode_versioned(member.metadata)[0].topics),
                instance_id=member.group_instance_id,
            )
            for member in members
        ]
        wanted = sorted({str(topic) for subscriber in subscribers for topic in subscriber.topics})
        counts = {topic: len(found) for topic, found in self._cluster.partitions(wanted).items() if found}
        shared: Mapping[str, Mapping[str, Sequence[int]]] = get(ASSIGNOR).assign(subscribers, Topics(counts))
        return shared


def _assignment(owned: Mapping[str, Sequence[int]]) -> bytes:
    topics = [TopicPartition(topic=topic, partitions=list(partitions)) for topic, partitions in owned.items()]
    return ConsumerProtocolAssignment(assigned_partitions=topics).encode_versioned(0)


def _partitions_of(assignment: bytes) -> list[tuple[str, int]]:
    if not assignment:
        return []
    owned, _ = ConsumerProtocolAssignment.decode_versioned(assignment)
    return [(topic.topic, partition) for topic in owned.assigned_partitions for partition in topic.partitions]
