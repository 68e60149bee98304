"""The node for `large_cases`. It has many more topics, partitions, groups and transactions than the node of `state`."""

from __future__ import annotations

from typing import Any

from kcore.protocol.compression import CompressionType, compress
from kcore.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.read_share_group_state import PartitionData as ReadPartition
from kcore.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.protocol.messages.write_share_group_state import PartitionData as WritePartition
from kcore.protocol.messages.write_share_group_state import StateBatch, WriteShareGroupStateRequest, WriteStateData
from kcore.share.batches import MAX_BATCHES
from kcore_ext.batch import BatchBuilder
from tests.kit import batch, commit, create, produce
from tools.request_costs.state import State

TOPICS = 60_000
WIDE_TOPICS = 4
WIDE_PARTITIONS = 10_000
PARTITIONS = TOPICS + WIDE_TOPICS * WIDE_PARTITIONS
GROUPS = 100_000
TRANSACTIONS = 100_000
PRODUCERS = 100_000
ACLS = 80_000
BOMBS = 100
BOMB_BYTES = 16_000_000
AT_ONCE = 5_000
LARGE_BATCH = 700_000
LARGE_STATES = 10
TOPIC, GROUP = 2, 32


class LargeState(State):
    """An engine with 100,000 partitions, groups, transactional ids and producers, filled without sockets.

    Attributes:
        wide: the names of the topics with 10,000 partitions.
    """

    def _fill(self) -> None:
        self.names = [f"t{number:05}" for number in range(TOPICS)]
        self.groups = [f"g{number:05}" for number in range(GROUPS)]
        self.transactions = [f"x{number:05}" for number in range(TRANSACTIONS)]
        self.wide = [f"wide{number}" for number in range(WIDE_TOPICS)]
        for first in range(0, TOPICS, AT_ONCE):
            self._send_good(create(*self.names[first : first + AT_ONCE]))
        for name in self.wide:
            self._send_good(create(name, partitions=WIDE_PARTITIONS))
        for config_type, names in ((TOPIC, self.names), (GROUP, self.groups)):
            setting = "retention.ms" if config_type == TOPIC else "consumer.session.timeout.ms"
            for first in range(0, len(names), AT_ONCE):
                self.send(_changes(config_type, names[first : first + AT_ONCE], setting))
        self._send_good(create("data", "narrow"))
        self._send_good(create("bombs", partitions=BOMBS))
        for group in self.groups:
            self.send(commit(group, {("data", 0): 1}), 8)
        self.send(FindCoordinatorRequest(key_type=1, coordinator_keys=self.transactions[:1]))
        for transactional_id in self.transactions:
            self.send(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000))
        for number in range(PRODUCERS):
            self.send(produce("data", batch([b"v"], producer_id=1_000_000 + number, epoch=0, sequence=0)), 9)
        for first in range(0, ACLS, AT_ONCE):
            self.send(CreateAclsRequest(creations=[_acl(number) for number in range(first, first + AT_ONCE)]))
        bomb = batch([bytes(8_000)] * (BOMB_BYTES // 8_000), compression=CompressionType.GZIP, compress=compress)
        for index in range(BOMBS):
            self.send(produce("bombs", bomb, index), 9)
        self._fill_compacted()

    def _send_good(self, request: Any) -> None:
        response = self.send(request)
        for result in getattr(response, "topics", None) or getattr(response, "coordinators", ()):
            assert not result.error_code, result

    def _fill_compacted(self) -> None:
        """Fills a compacted topic with a batch of 700,000 keys, and changes half of them."""
        self._send_good(create("compacted"))
        changed = [AlterableConfig(name="cleanup.policy", config_operation=0, value="compact")]
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="compacted", configs=changed)
        self.send(IncrementalAlterConfigsRequest(resources=[resource]))
        for keys in (range(LARGE_BATCH), range(0, LARGE_BATCH, 2), range(1)):
            builder = BatchBuilder(
                40 * LARGE_BATCH, base_timestamp_ms=1, compression=CompressionType.ZSTD, compress=compress
            )
            for key in keys:
                builder.append(1, key.to_bytes(4, "big"), b"")
            written = self.send(produce("compacted", bytes(builder.build())), 9)
            assert not written.responses[0].partition_responses[0].error_code, written

    def _fill_share_groups(self) -> None:
        """Makes a share group whose share partitions have the largest number of state batches."""
        self._join_share_group(self.share_group, "m", ["bombs"])
        self._await_assignment("m", BOMBS)
        topic_id = self.topic_id("bombs")
        batches = [
            StateBatch(first_offset=2 * number, last_offset=2 * number, delivery_state=0, delivery_count=1)
            for number in range(MAX_BATCHES)
        ]
        for index in range(LARGE_STATES):
            read = ReadShareGroupStateRequest(
                group_id=self.share_group,
                topics=[ReadStateData(topic_id=topic_id, partitions=[ReadPartition(partition=index, leader_epoch=-1)])],
            )
            epoch = self.send(read).results[0].partitions[0].state_epoch
            data = WritePartition(
                partition=index, state_epoch=epoch, leader_epoch=0, start_offset=0, state_batches=batches
            )
            written = self.send(
                WriteShareGroupStateRequest(
                    group_id=self.share_group, topics=[WriteStateData(topic_id=topic_id, partitions=[data])]
                )
            )
            assert not written.results[0].partitions[0].error_code, written

    def _await_assignment(self, member_id: str, partitions: int) -> None:
        """Sends heartbeats until the share group's member is assigned `partitions` partitions, so that all are
        initialized.
        """
        epoch, assigned = 0, 0
        while assigned < partitions:
            names = ["bombs"] if epoch == 0 else None
            beat = self.send(
                ShareGroupHeartbeatRequest(
                    group_id=self.share_group, member_id=member_id, member_epoch=epoch, subscribed_topic_names=names
                )
            )
            assert not beat.error_code, beat
            epoch = beat.member_epoch
            if beat.assignment is not None:
                assigned = sum(len(topic.partitions) for topic in beat.assignment.topic_partitions)


def _changes(config_type: int, names: list[str], setting: str) -> IncrementalAlterConfigsRequest:
    changed = [AlterableConfig(name=setting, config_operation=0, value="50000")]
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=config_type, resource_name=name, configs=changed) for name in names
        ]
    )


def _acl(number: int) -> AclCreation:
    return AclCreation(
        resource_type=2,
        resource_name=f"t{number:05}",
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host="*",
        operation=3,
        permission_type=3,
    )
