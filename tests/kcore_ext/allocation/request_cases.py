"""The parts of a server that process requests, while allocations fail: request queue, offset commit, fetch, produce.

A failed allocation may cause an error response or abort the round, which the engine's tests cover. The cases of this
module check that the same objects give correct responses afterwards.
"""

from __future__ import annotations

from typing import Any

from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.runtime import RequestContext
from kcore_ext.codec.frames import encode_request, encode_response
from kcore_ext.server.request_queue import RequestQueue
from tests.broker.data.context import DataPlane, batch_of
from tests.group.offsets.world import OffsetsContext
from tests.kcore_ext.allocation.sweep import Attempt
from tests.server.test_request_queue import Owner


def request_queue() -> Attempt:
    """Sends heartbeats through the request queue of a connection, in several reads.

    The frames are new, repeated (the queue caches them by their bytes), incomplete, or several in one read.
    """
    owner = Owner(RequestQueue)
    queue = owner.queue
    frames = [
        encode_request(HeartbeatRequest(group_id=group, generation_id=n % 3, member_id="m"), 4, n, "client")
        for n, group in enumerate(["g", "g", "g", "new", "g", "g", "done", "g"])
    ]
    data = b"".join(frames)

    def action() -> None:
        queue.feed(data[:7])
        queue.serve()
        queue.feed(data[7:100])
        queue.serve()
        queue.feed(data[100:])
        queue.serve()
        queue.take()

    def check(succeeded: bool) -> None:
        queue.clear()
        queue.take()
        queue.feed(frames[1] + frames[1])
        queue.serve()
        response = queue.take()
        if response is not None:  # a response that could not be encoded delays later ones
            assert response.endswith(encode_response(HeartbeatResponse(error_code=25), 4, 1, 1))
        queue.close()
        assert queue.cache_size == 0
        assert not succeeded or response is not None

    return Attempt(action, check, also=(Exception,), only_alone=True)


def offset_commit() -> Attempt:
    """Commits offsets of cached partitions and of new partitions."""
    world = OffsetsContext({"offset.metadata.max.bytes": 8}, {"t": 3, "u": 9})
    api = OffsetCommitApi(world.shards, world.topics, None)
    context = RequestContext(9, "client")
    requested = [
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name=name, partitions=[OffsetCommitRequestPartition(partition_index=p) for p in range(count)]
                )
            ],
        )
        for name, count in (("t", 3), ("u", 9), ("t", 3), ("u", 1))
    ]
    api.handle(context, requested[0])
    world.commit()

    def action() -> None:
        for request in requested:
            api.handle(context, request)

    def check(succeeded: bool) -> None:
        fresh = OffsetsContext({"offset.metadata.max.bytes": 8}, {"t": 3, "u": 9})
        other = OffsetCommitApi(fresh.shards, fresh.topics, None)
        for request in requested:
            result: Any = other.handle(context, request)
            fresh.commit()
            assert [p.error_code for t in result.response.topics for p in t.partitions] == [0] * len(
                request.topics[0].partitions
            )

    return Attempt(action, check, also=(Exception,), only_alone=True)


def _plane() -> DataPlane:
    plane = DataPlane()
    plane.topic("a", 3)
    plane.topic("b", 2)
    for name, index in (("a", 0), ("a", 2), ("b", 1)):
        for _ in range(3):
            partition = PartitionProduceData(index=index, records=batch_of(b"value"))
            request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=name, partition_data=[partition])])
            plane.call(request, 9)
    return plane


def _fetch(session_id: int = 0, epoch: int = -1) -> FetchRequest:
    return FetchRequest(
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=name,
                partitions=[FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 16) for p in range(4)],
            )
            for name in ("a", "b", "absent")
        ],
    )


def fetch() -> Attempt:
    """Sends a fetch without a session, a fetch that creates a session, and a fetch in this session."""
    plane = _plane()
    expected = plane.call(_fetch(), 12)

    def action() -> None:
        plane.send(_fetch(), 12)
        plane.send(_fetch(0, 0), 12)
        plane.send(FetchRequest(max_bytes=1 << 20, session_id=1001, session_epoch=1), 12)

    def check(succeeded: bool) -> None:
        assert plane.call(_fetch(), 12) == expected
        assert {p.error_code for t in expected.responses for p in t.partitions} == {0, 3}

    return Attempt(action, check, also=(Exception,), only_alone=True)


def produce() -> Attempt:
    """Produces batches for several partitions, with sequence numbers."""
    plane = _plane()
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=p, records=batch_of(b"x", b"y", producer=(7, 0), sequence=0))
                    for p in range(2)
                ],
            )
            for name in ("a", "b")
        ],
    )

    def action() -> None:
        plane.send(request, 9)

    def check(succeeded: bool) -> None:
        fresh = _plane()
        response = fresh.call(request, 9)
        assert [p.error_code for t in response.responses for p in t.partition_responses] == [0] * 4

    return Attempt(action, check, also=(Exception,), only_alone=True)
