"""A group shard with the offset APIs, and simulated deletions of topics and transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.offset_delete import OffsetDeleteApi
from kcore.group.apis.offset_fetch import OffsetFetchApi
from kcore.group.apis.txn_offset_commit import TxnOffsetCommitApi
from kcore.group.offsets.deletion import on_topic_deleted
from kcore.log import PartitionKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore.runtime import Pending
from kcore_ext.batch import build_control_batch
from tests.group.context import CONSUMER_OFFSETS_ID, GroupContext

OffsetsByTopic = Mapping[str, Mapping[int, Any]]  # topic -> partition -> offset, or (offset, leader epoch, metadata)


class TransactionsOfTest:
    """A transaction coordinator that returns `verdict`: an error code, or a `Pending` that the test completes later."""

    def __init__(self) -> None:
        self.verdict: ErrorCode | Pending = ErrorCode.NONE
        self.calls: list[tuple[Any, ...]] = []

    def verify_group(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, add: bool
    ) -> ErrorCode | Pending:
        self.calls.append((transactional_id, producer_id, producer_epoch, topic, partition, add))
        return self.verdict


class OffsetsContext(GroupContext):
    """A `GroupContext` with short methods to commit, read and delete offsets."""

    def __init__(self, settings: Mapping[str, Any] | None = None, topics: Mapping[str, int] | None = None) -> None:
        super().__init__(settings, topics)
        self.transactions = TransactionsOfTest()
        self.authorizer: Any = None

    # ---- the cluster around it

    def api(self, kind: Callable[..., Any]) -> Any:
        """Returns an API on the current shard."""
        if kind is TxnOffsetCommitApi:
            return TxnOffsetCommitApi(self.shards, self.topics, self.transactions, self.authorizer)
        return kind(self.shards, self.topics, self.authorizer)

    def end_transaction(self, producer_id: int, commit: bool, producer_epoch: int = 0) -> None:
        """Appends a marker to the shard's log, replays it, and commits."""
        self.pipeline.commit()
        log = self.engine.open(PartitionKey(CONSUMER_OFFSETS_ID, 0))
        marker = build_control_batch(
            int(commit), 0, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=self.clock.wall_ms()
        )
        offset = log.append(bytearray(marker), self.shard.leader_epoch)
        self.machine.replay_marker(offset, producer_id, producer_epoch, commit)
        self.engine.commit()

    def delete_topic(self, name: str) -> None:
        """Deletes a topic, notifies the shards, and runs their work to its end."""
        info = self.topics.by_name(name)
        assert info is not None
        del self.topics._topics[name]
        on_topic_deleted(self.shards, name, info.topic_id)
        self.finish()

    # ---- requests

    def commit_offsets(
        self,
        group: str,
        offsets: OffsetsByTopic,
        *,
        version: int = 9,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        retention_ms: int = -1,
    ) -> list[int]:
        """Sends an OffsetCommit. Returns the error codes in response order. From v10 on, topics are given by ids
        (bytes).
        """
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name="" if isinstance(topic, bytes) else topic,
                    topic_id=topic if isinstance(topic, bytes) else bytes(16),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=metadata,
                        )
                        for partition, (offset, epoch, metadata) in _triples(partitions)
                    ],
                )
                for topic, partitions in offsets.items()
            ],
        )
        return codes(self.call(self.api(OffsetCommitApi), request, version=version))

    def commit_in_transaction(
        self,
        group: str,
        offsets: OffsetsByTopic,
        *,
        producer_id: int = 7,
        version: int = 3,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
    ) -> list[int]:
        """Sends a TxnOffsetCommit. Returns the error codes in response order."""
        request = txn_request(group, offsets, producer_id, generation, member, instance)
        return codes(self.call(self.api(TxnOffsetCommitApi), request, version=version))

    def fetch(
        self,
        group: str,
        requested: Mapping[str, list[int]] | None,
        *,
        stable: bool = False,
        member: str | None = None,
        epoch: int = -1,
    ) -> Any:
        """Sends an OffsetFetch v9 of one group. Returns {topic: {partition: (offset, leader epoch, metadata, error
        code)}}, or the error code of the group.
        """
        topics = (
            None
            if requested is None
            else [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in requested.items()]
        )
        requested_group = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
        request = OffsetFetchRequest(groups=[requested_group], require_stable=stable)
        (response,) = self.call(self.api(OffsetFetchApi), request, version=9).groups
        assert response.group_id == group
        if response.error_code:
            assert not response.topics
            return response.error_code
        return {
            topic.name: {
                p.partition_index: (p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
                for p in topic.partitions
            }
            for topic in response.topics
        }

    def fetch_old(self, version: int, group: str, requested: Mapping[str, list[int]] | None) -> Any:
        """Sends an OffsetFetch v1-7. Returns the whole response."""
        topics = (
            None
            if requested is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in requested.items()]
        )
        request = OffsetFetchRequest(group_id=group, topics=topics)
        return self.call(self.api(OffsetFetchApi), request, version=version)

    def offset(self, group: str, topic: str, partition: int) -> int:
        """Returns the committed offset of one partition."""
        committed: int = self.fetch(group, {topic: [partition]})[topic][partition][0]
        return committed

    def delete_offsets(self, group: str, requested: Mapping[str, list[int]]) -> Any:
        """Sends an OffsetDelete. Returns {topic: [(partition, error code)]}, or the error code of
        the whole response.
        """
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions]
                )
                for name, partitions in requested.items()
            ],
        )
        response = self.call(self.api(OffsetDeleteApi), request, version=0)
        if response.error_code:
            assert not response.topics
            return response.error_code
        return {t.name: [(p.partition_index, p.error_code) for p in t.partitions] for t in response.topics}

    # ---- state

    def state(self) -> dict[str, Any]:
        """Returns the durable state of offsets in comparable form. A restart must restore this state."""
        store = self.machine.offsets
        groups = sorted(store.groups())
        return {
            "groups": sorted(self.machine.groups),
            "count": store.offset_count,
            "offsets": {group: {t: dict(p) for t, p in store.topics(group).items()} for group in groups},
            "pending": {
                (producer, group, topic, partition): store.pending(producer, group, topic, partition)
                for group in groups
                for topic, partitions in store.pending_topics(group).items()
                for partition, producers in partitions.items()
                for producer in producers
            },
        }

    def assert_restart_changes_nothing(self) -> None:
        """Reloads the shard from its log, and checks that the state is unchanged."""
        before = self.state()
        self.restart()
        assert self.state() == before


def txn_request(
    group: str,
    offsets: OffsetsByTopic,
    producer_id: int,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="transaction",
        group_id=group,
        producer_id=producer_id,
        producer_epoch=0,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for partition, (offset, epoch, metadata) in _triples(partitions)
                ],
            )
            for topic, partitions in offsets.items()
        ],
    )


def codes(response: Any) -> list[int]:
    """Returns the error codes of all partitions, in order."""
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def _triples(partitions: Mapping[int, Any]) -> list[tuple[int, tuple[int, int, str | None]]]:
    return [(p, o if isinstance(o, tuple) else (o, -1, "")) for p, o in partitions.items()]
