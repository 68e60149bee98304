"""Short helpers for requests to a whole engine or server, in this process or over a socket."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kcore_ext.batch import BatchBuilder, iter_records, split_batches

PRODUCE_VERSION = 9  # the newest versions that identify topics by name
FETCH_VERSION = 12
COMMIT_VERSION = 9
OFFSETS_VERSION = 9

QUICK = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1"}


def serve(api: Any, context: Any, request: Any) -> Any:
    """Passes a request to an API as the engine does: to `fast`, and to `handle` if the fast path declines it."""
    response = None if api.fast is None else api.fast(context, request)
    return api.handle(context, request) if response is None else response


class Target(Protocol):
    """A receiver of requests: an engine in this process, or a connection to a server."""

    def send(self, request: Any, version: int | None = None) -> Any: ...


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = 30.0) -> Any:
    """Waits until `condition` returns a true value, which depends on other threads or processes. Returns this value."""
    until = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < until, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.002)
    return value


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000)


def make_topic(target: Target, name: str, partitions: int = 1) -> None:
    (result,) = target.send(create(name, partitions=partitions)).topics
    assert result.error_code == 0, result


def batch(
    values: Sequence[bytes],
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    compression: int = 0,
    compress: Callable[[int, bytes], bytes] | None = None,
) -> bytes:
    size = sum(map(len, values)) + 64 * len(values) + 100
    builder = BatchBuilder(
        size,
        base_timestamp_ms=1_700_000_000_000,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        compression=compression,
        compress=compress,
    )
    for value in values:
        assert builder.append(1_700_000_000_000, None, value)
    return bytes(builder.build())


def produce(topic: str, records: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def fetch(
    topic: str, offset: int = 0, partition: int = 0, *, wait_ms: int = 0, max_bytes: int = 1 << 20
) -> FetchRequest:
    parts = [FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=parts)],
    )


def start_offset(target: Target, topic: str, partition: int = 0) -> int:
    """Returns the first offset of a partition's log."""
    entry = ListOffsetsPartition(partition_index=partition, timestamp=-2)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[entry])])
    (row,) = target.send(request).topics[0].partitions
    assert row.error_code == 0, row
    return int(row.offset)


def read_all(target: Target, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """Reads (offset, value) of all records in a partition."""
    found: list[tuple[int, bytes | None]] = []
    while True:
        offset = found[-1][0] + 1 if found else 0
        (response,) = target.send(fetch(topic, offset, partition), FETCH_VERSION).responses[0].partitions
        assert response.error_code == 0, response
        data = response.records or b""
        split = split_batches(data)
        assert split.error is None, split
        if not split.batches:
            return found
        for start, size in split.batches:
            records = iter_records(data[start : start + size])
            found += [(record.offset, record.value) for record in records if record.offset >= offset]


def producer_id() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


def commit(
    group: str, offsets: Mapping[tuple[str, int], int], member: str = "", generation: int = -1, metadata: str = ""
) -> OffsetCommitRequest:
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()],
    )


def committed(target: Target, group: str) -> dict[tuple[str, int], int]:
    """Returns every committed offset of a group."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (response,) = target.send(request, OFFSETS_VERSION).groups
    assert response.error_code == 0, response
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in response.topics
        for part in topic.partitions
    }


def join(
    group: str,
    member: str = "",
    *,
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
    protocol_type: str = "work",
    protocol: str = "any",
    metadata: bytes = b"",
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
    )


def sync(
    group: str,
    member: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    protocol_type: str = "work",
    protocol: str = "any",
) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(member_id=one, assignment=what) for one, what in (assignments or {}).items()]
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=given,
    )


def heartbeat(group: str, member: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)


def leave(group: str, member: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])


def new_member(target: Target, group: str, **options: Any) -> str:
    """Requests a member id, as a client does before it joins (KIP-394)."""
    response = target.send(join(group, **options))
    assert response.error_code == 79, response  # MEMBER_ID_REQUIRED
    return str(response.member_id)


def stable_alone(target: Target, group: str, **options: Any) -> tuple[str, int]:
    """Makes a group of one member. Returns the id of the member and the generation."""
    member = new_member(target, group, **options)
    joined = target.send(join(group, member, **options))
    assert joined.error_code == 0, joined
    synced = target.send(sync(group, member, joined.generation_id, {member: b"everything"}))
    assert synced.error_code == 0, synced
    return member, joined.generation_id
