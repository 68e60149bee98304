"""Produces and polls on an event loop: the poll is parked until there are records.

python examples/embed_async.py
"""

from __future__ import annotations

import asyncio

import kcore
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore_ext.batch import BatchBuilder, iter_records

BY_NAME = 12  # the newest version of both APIs that identifies topics by name


async def poll(engine: kcore.AsyncEmbeddedNode) -> FetchResponse:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="lines", partitions=[partition])]
    return await engine.send(FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=topics), BY_NAME)


async def produce(engine: kcore.AsyncEmbeddedNode, *values: bytes) -> None:
    batch = BatchBuilder(10_000, base_timestamp_ms=0)
    for value in values:
        batch.append(0, None, value)
    data = [PartitionProduceData(index=0, records=batch.build())]
    await engine.send(
        ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="lines", partition_data=data)]), BY_NAME
    )


async def main() -> None:
    async with kcore.open_async() as engine:
        topic = CreatableTopic(name="lines", num_partitions=1, replication_factor=1)
        await engine.send(CreateTopicsRequest(topics=[topic]))
        polled, _ = await asyncio.gather(poll(engine), produce(engine, b"first", b"second"))
        records = polled.responses[0].partitions[0].records or b""
        for record in iter_records(records):
            print(f"offset {record.offset}: {(record.value or b'').decode()}")


if __name__ == "__main__":
    asyncio.run(main())
