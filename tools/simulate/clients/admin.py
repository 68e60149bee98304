"""Administration of topics, partitions, settings, groups and records, while all other clients run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.topic_partition import TopicPartition
from tools.simulate.clients.client import NETWORK, Client
from tools.simulate.history import OffsetWrite


class Admin(Client):
    """Creates, changes and deletes topics and groups.

    Options: interval_ms, short_topic, topic, and volatile (a topic that this client deletes and creates again).
    """

    def start(self) -> None:
        """Implements `Client.start`."""
        self._channel = self.channel()
        self._count = 0
        self.spawn(self._run())

    async def _run(self) -> None:
        actions = [
            self._create,
            self._delete,
            self._grow,
            self._configure,
            self._list,
            self._delete_records,
            self._simple_commit,
            self._delete_group,
            self._change_volatile,
        ]
        while self.alive and not self.world.calm:
            with suppress(*NETWORK):
                await self.choice.choice(actions)()
            await self.kernel.sleep(self.choice.randrange(1, 2 * self.options["interval_ms"]))

    async def _create(self) -> None:
        self._count += 1
        name = f"tmp-{self.name}-{self.life}-{self._count}"
        topics = self.world.model_topics
        topics[name] = "unknown"
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=self.choice.randrange(1, 4), replication_factor=1)],
            timeout_ms=5_000,
        )
        (row,) = (await self._channel.call(request)).topics
        if not row.error_code:
            topics[name] = "exists"

    async def _delete(self) -> None:
        topics = self.world.model_topics
        known = [name for name, state in topics.items() if state == "exists"]
        if not known:
            return
        name = self.choice.choice(known)
        topics[name] = "unknown"
        (row,) = (await self._channel.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000), 5)).responses
        if not row.error_code:
            topics[name] = "deleted"
        elif row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.world.checks.require(False, "topics", f"{name} was created and is unknown")

    async def _grow(self) -> None:
        known = [name for name, state in self.world.model_topics.items() if state == "exists"]
        if known:
            topic = CreatePartitionsTopic(name=self.choice.choice(known), count=self.choice.randrange(2, 6))
            await self._channel.call(CreatePartitionsRequest(topics=[topic], timeout_ms=5_000))

    async def _configure(self) -> None:
        value = str(self.choice.randrange(1 << 20, 1 << 30))
        config = AlterableConfig(name="segment.bytes", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=self.options["topic"], configs=[config])
        await self._channel.call(IncrementalAlterConfigsRequest(resources=[resource]))

    async def _list(self) -> None:
        response = await self._channel.call(ListGroupsRequest())
        names = [each.group_id for each in response.groups][:20]
        if names:
            await self._channel.call(DescribeGroupsRequest(groups=names))

    async def _delete_records(self) -> None:
        topic = self.options.get("short_topic")
        if not topic:
            return
        partition = TopicPartition(topic, 0)
        # The high watermark: the model notes it before the request, as the response may be lost.
        at = max((w.offset for w in self.history.writes.values() if w.partition == partition), default=-1)
        offset = self.choice.randrange(0, at + 2)
        below = self.history.deleted_below
        below[partition] = max(below.get(partition, 0), offset)
        rows = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=5_000)
        response: Any = await self._channel.call(request)
        row = response.topics[0].partitions[0]
        self.world.checks.require(
            bool(row.error_code) or offset <= row.low_watermark <= below[partition],
            "deletion",
            f"{partition} starts at {row.low_watermark} after the deletion below {offset}",
        )

    async def _change_volatile(self) -> None:
        """Deletes or creates the topic `volatile`, which is one of several topics to which members subscribe."""
        name = self.options.get("volatile")
        if not name:
            return
        if self.choice.random() < 0.5:
            partitions = self.choice.randrange(1, 4)
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            await self._channel.call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        else:
            await self._channel.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000), 5)

    async def _simple_commit(self) -> None:
        """Commits an offset of a group without members."""
        self._count += 1
        group = f"simple-{self.choice.randrange(4)}"
        partition = TopicPartition(self.options["topic"], 0)
        write = self.history.commit(group, partition, OffsetWrite(self._count, self.kernel.now_ms))
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=self._count)]
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=rows)]
        )
        response: Any = await self._channel.call(request, 9)
        write.done_ms = self.kernel.now_ms
        write.result = self.world.outcome(response.topics[0].partitions[0].error_code, write.sent_ms)

    async def _delete_group(self) -> None:
        """Deletes a group. In the history, the deletion is a commit of the offset -1."""
        group = f"simple-{self.choice.randrange(4)}"
        partition = TopicPartition(self.options["topic"], 0)
        if (group, partition) not in self.history.offsets:
            return
        write = self.history.commit(group, partition, OffsetWrite(-1, self.kernel.now_ms))
        (row,) = (await self._channel.call(DeleteGroupsRequest(groups_names=[group]))).results
        write.done_ms = self.kernel.now_ms
        write.result = self.world.outcome(row.error_code, write.sent_ms)
