"""A whole node to test share groups, with a real engine, a log in memory, virtual time, and methods that send
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kcore.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from kcore.protocol.messages.initialize_share_group_state import PartitionData as InitialState
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kcore.protocol.messages.share_fetch import AcknowledgementBatch as FetchAcknowledgement
from kcore.protocol.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from kcore.protocol.messages.write_share_group_state import PartitionData as WritePartition
from kcore.protocol.messages.write_share_group_state import (
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from kcore.protocol.records import decode_key, decode_value
from kcore_ext.batch import BatchBuilder, iter_records, split_batches
from tests.harness import EngineHarness

GROUP_RESOURCE = 32
Ack = tuple[int, ...]
"""Type of an acknowledgement: the first offset, the last offset, and then the acknowledgement types."""


class World(EngineHarness):
    """A node with one topic, `t`, and the share group `g`, whose state is initialized at `start_offset`.

    Args:
        settings: settings of the node by their Kafka names.
        partitions: the number of partitions of `t`.
        group: settings of the group.
        start_offset: the start offset of the group's share partitions.
    """

    SETTINGS: ClassVar[Mapping[str, Any]] = {
        "offsets.topic.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 2,
    }

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        partitions: int = 1,
        group: Mapping[str, str] | None = None,
        start_offset: int = 0,
    ) -> None:
        super().__init__(settings, {"t": partitions})
        self.call(FindCoordinatorRequest(key_type=2, coordinator_keys=[f"g:{'A' * 22}:0"]), 6)
        self.engine.turn()
        if group:
            self.configure(**group)
        self.initialize(range(partitions), start_offset)

    def configure(self, **settings: str) -> None:
        """Alters settings of the group. Underscores in the keywords stand for dots."""
        configs = [
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        ]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=configs)
        response = self.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert not response.responses[0].error_code, response

    def initialize(self, partitions: Iterable[int], start_offset: int = 0, state_epoch: int = 1) -> None:
        states = [
            InitialState(partition=index, state_epoch=state_epoch, start_offset=start_offset) for index in partitions
        ]
        request = InitializeShareGroupStateRequest(
            group_id="g", topics=[InitializeStateData(topic_id=self.topic_id(), partitions=states)]
        )
        response = self.call(request, 0)
        assert {result.error_code for result in response.results[0].partitions} == {0}, response

    def store(self, *batches: tuple[int, int, int, int]) -> None:
        """Sends state batches of partition 0 to the share coordinator, bypassing the share partition in memory. Each
        batch is (first offset, last offset, state, count).
        """
        data = WritePartition(
            partition=0,
            state_epoch=-1,
            leader_epoch=-1,
            start_offset=-1,
            state_batches=[
                StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        request = WriteShareGroupStateRequest(
            group_id="g", topics=[WriteStateData(topic_id=self.topic_id(), partitions=[data])]
        )
        response = self.call(request, 0)
        assert not response.results[0].partitions[0].error_code, response

    def produce(self, *sizes: int, partition: int = 0, wall_ms: int | None = None) -> None:
        """Appends log batches with these numbers of records."""
        for size in sizes:
            response = self.call(self.produce_request(size, partition, wall_ms), 9)
            assert not response.responses[0].partition_responses[0].error_code, response

    def produce_request(self, size: int, partition: int = 0, wall_ms: int | None = None) -> ProduceRequest:
        """Returns a request with one batch of `size` records."""
        builder = BatchBuilder(1 << 20, base_timestamp_ms=wall_ms or self.clock.wall_ms())
        for _ in range(size):
            assert builder.append(wall_ms or self.clock.wall_ms(), None, b"v")
        data = PartitionProduceData(index=partition, records=builder.build())
        return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])

    def delete_records(self, offset: int) -> None:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=1000)
        assert not self.call(request, 2).topics[0].partitions[0].error_code

    # ---- share consumers

    def fetch_request(
        self,
        member: str,
        epoch: int,
        partitions: Mapping[int, Sequence[Ack]] | Iterable[int] = (),
        *,
        forgotten: Sequence[int] = (),
        **more: Any,
    ) -> ShareFetchRequest:
        acks = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, ())
        entries = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    FetchAcknowledgement(first_offset=ack[0], last_offset=ack[1], acknowledge_types=ack[2:])
                    for ack in each
                ],
            )
            for index, each in acks.items()
        ]
        fields = {
            "group_id": "g",
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            **more,
        }
        return ShareFetchRequest(
            member_id=member,
            share_session_epoch=epoch,
            topics=[FetchTopic(topic_id=self.topic_id(), partitions=entries)] if entries else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id(), partitions=forgotten)] if forgotten else [],
            **fields,
        )

    def fetch(self, member: str, epoch: int, partitions: Any = (), **more: Any) -> Any:
        """Sends ShareFetch; returns the response."""
        return self.call(self.fetch_request(member, epoch, partitions, **more), 2)

    def acquire(self, member: str, epoch: int, partitions: Any = (), **more: Any) -> list[tuple[int, int, int]]:
        """Sends ShareFetch; returns the acquired ranges of all partitions."""
        return acquired(self.fetch(member, epoch, partitions, **more))

    def acknowledge_request(
        self, member: str, epoch: int, acks: Mapping[int, Sequence[Ack]], *, renew: bool = False
    ) -> ShareAcknowledgeRequest:
        entries = [
            AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=ack[0], last_offset=ack[1], acknowledge_types=ack[2:])
                    for ack in each
                ],
            )
            for index, each in acks.items()
        ]
        return ShareAcknowledgeRequest(
            group_id="g",
            member_id=member,
            share_session_epoch=epoch,
            is_renew_ack=renew,
            topics=[AcknowledgeTopic(topic_id=self.topic_id(), partitions=entries)] if entries else [],
        )

    def acknowledge(self, member: str, epoch: int, *acks: Ack, renew: bool = False) -> int:
        """Sends ShareAcknowledge for partition 0; returns the error code of the partition."""
        response = self.call(self.acknowledge_request(member, epoch, {0: acks}, renew=renew), 2)
        assert not response.error_code, response
        return int(response.responses[0].partitions[0].error_code)

    # ---- state for assertions

    def records(self) -> list[Any]:
        """Returns the keys and values of all records of `__share_group_state`."""
        found = []
        for index in range(2):
            partition = self.engine.partitions.get("__share_group_state", index)
            assert partition is not None
            for _, batch in partition.log.batches():
                for record in iter_records(batch):
                    key = decode_key("__share_group_state", record.key or b"")
                    found.append((key, decode_value(key, record.value)))
        return found

    def share_partition(self, index: int = 0) -> Any:
        from kcore.broker.share.sessions import TopicIdPartition

        return self.engine.share_partitions.get("g", TopicIdPartition(self.topic_id(), index))


def acquired(response: Any) -> list[tuple[int, int, int]]:
    """Returns the acquired ranges of a response: first offset, last offset, delivery count."""
    assert not response.error_code, response
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def offsets(response: Any) -> list[int]:
    """Returns the offsets of the records in a response."""
    return [
        record.offset
        for topic in response.responses
        for partition in topic.partitions
        for start, size in split_batches(partition.records).batches
        for record in iter_records(bytes(partition.records[start : start + size]))
    ]
