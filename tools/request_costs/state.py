"""A node with many groups, topics and transactions, which serves the requests of `cases`."""

from __future__ import annotations

from typing import Any

from kcore.clock import SystemClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import MemoryLogEngine
from kcore.log.engine import _ENGINES
from kcore.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from kcore.runtime import Pending, RequestContext
from tests.kit import batch, commit, create, join, produce, sync

TOPICS = 10_000
WIDE_PARTITIONS = 10_000
GROUPS = 20_000
OFFSETS = 50_000
ACLS = 10_000
TRANSACTIONS = 10_000
PRODUCERS = 10_000
BLOB = 900_000
SHARE_MEMBERS = 199
STREAMS_MEMBERS = 5_000
SUBSCRIBERS_OF_ALL = 20
LOCKED_RECORDS = 4_000
HOUR_MS = "3600000"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "kcore.durability": "memory",
    "listeners": "127.0.0.1:0",
    "group.share.max.session.timeout.ms": HOUR_MS,  # sessions last as long as the measurement
    "group.share.session.timeout.ms": HOUR_MS,
    "group.share.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.streams.max.size": "10000",
    "group.streams.max.session.timeout.ms": HOUR_MS,
    "group.streams.session.timeout.ms": HOUR_MS,
    "group.streams.max.assignment.interval.ms": HOUR_MS,
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}


class State:
    """An engine, filled without sockets.

    Attributes:
        engine: the engine that serves the requests.
        names: the names of the small topics.
        groups: the ids of the groups.
        big_group: a group whose description has 900 KB.
        producer: a producer with an open transaction over all partitions of the topic "wide".
        share_group: a share group that accepts one more member, and whose members subscribe to the topics "wide" and
            "data".
        share_group_of_all: a share group whose members subscribe to all topics.
        idle_share_group: a share group without members that has state for the partitions of all topics.
        streams_group: a streams group with `STREAMS_MEMBERS` members. It computes its next target after an hour.
    """

    def __init__(self) -> None:
        log = MemoryLogEngine()
        _ENGINES.discard(log)  # forked children continue with their own copies; there is no file
        self.engine = Engine(log, Config.of(SETTINGS), SystemClock())
        self.names = [f"t{number:05}" for number in range(TOPICS)]
        self.groups = [f"g{number:05}" for number in range(GROUPS)]
        self.transactions = [f"x{number:05}" for number in range(TRANSACTIONS)]
        self.acls = [
            AclCreation(
                resource_type=2,
                resource_name=f"t{number:05}",
                resource_pattern_type=3,
                principal="User:u",
                host="*",
                operation=3,
                permission_type=3,
            )
            for number in range(ACLS)
        ]
        self.producer: Any = None
        self.big_group = "big"
        self.share_group, self.share_group_of_all, self.idle_share_group = "share", "share-all", "share-idle"
        self.streams_group = "streams"
        self._fill()
        self._fill_share_groups()
        self._fill_streams_group()
        for _ in self.engine.apis.make_all():  # as a server does soon after its start
            pass

    def send(self, request: Any, version: int | None = None) -> Any:
        """Processes a request, commits, and returns its response."""
        engine = self.engine
        engine.turn()
        version = engine.newest_version(request) if version is None else version
        response = engine.submit(RequestContext(version, "tool"), request)
        while engine.pipeline.dirty or engine.slices or (isinstance(response, Pending) and not response.done):
            engine.turn()
            engine.commit()
        return response.response if isinstance(response, Pending) else response

    def _fill(self) -> None:
        for first in range(0, TOPICS, 5_000):
            self.send(create(*self.names[first : first + 5_000]))
        self.send(create("wide", partitions=WIDE_PARTITIONS))
        self.send(create("data"))
        self.send(create("packed"))
        recompressed = [AlterableConfig(name="compression.type", config_operation=0, value="zstd")]
        resource = AlterConfigsResource(resource_type=2, resource_name="packed", configs=recompressed)
        self.send(IncrementalAlterConfigsRequest(resources=[resource]))
        for group in self.groups:
            self.send(commit(group, {("data", 0): 1}), 8)
        for first in range(0, OFFSETS, 5_000):
            self.send(
                commit("offsets", {("wide", index % WIDE_PARTITIONS): 1 for index in range(first, first + 5_000)}), 8
            )
        self.send(commit("offsets", {("data", 0): 1}, metadata="m" * 4_000), 8)
        self.send(commit("members", {("data", 0): 1}), 8)
        self._fill_group()
        for first in range(0, ACLS, 2_000):
            self.send(CreateAclsRequest(creations=self.acls[first : first + 2_000]))
        self.send(FindCoordinatorRequest(key_type=1, coordinator_keys=self.transactions[:1]))  # creates the topic
        for transactional_id in self.transactions:
            made = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            self.producer = self.send(made)
            assert not self.producer.error_code, self.producer
        for number in range(PRODUCERS):
            self.send(produce("data", batch([b"v"], producer_id=1_000_000 + number, epoch=0, sequence=0)), 9)
        for _ in range(60):
            self.send(produce("wide", batch([b"v" * 1_000_000])), 9)

    def _fill_group(self) -> None:
        member = self.send(join(self.big_group), 4).member_id
        joined = self.send(join(self.big_group, member, metadata=b"m" * BLOB), 4)
        response = self.send(sync(self.big_group, member, joined.generation_id, {member: b""}), 4)
        assert not response.error_code, response

    def topic_id(self, name: str) -> bytes:
        """Returns the id of a topic."""
        info = self.engine.topics.by_name(name)
        assert info is not None
        return info.topic_id

    def _fill_share_groups(self) -> None:
        self.send(FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{self.share_group}:{'A' * 22}:0"]))
        options = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": str(LOCKED_RECORDS)}
        configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in options.items()]
        resource = AlterConfigsResource(resource_type=32, resource_name=self.share_group, configs=configs)
        self.send(IncrementalAlterConfigsRequest(resources=[resource]))
        for number in range(SHARE_MEMBERS):
            self._join_share_group(self.share_group, f"m{number}", ["wide", "data"])
        for number in range(SUBSCRIBERS_OF_ALL):
            self._join_share_group(self.share_group_of_all, f"m{number}", [*self.names, "wide"])
        self._join_share_group(self.idle_share_group, "m", [*self.names, "wide"])
        left = self.send(ShareGroupHeartbeatRequest(group_id=self.idle_share_group, member_id="m", member_epoch=-1))
        assert not left.error_code, left

    def _join_share_group(self, group_id: str, member_id: str, names: list[str]) -> None:
        joined = self.send(
            ShareGroupHeartbeatRequest(
                group_id=group_id, member_id=member_id, member_epoch=0, subscribed_topic_names=names
            )
        )
        assert not joined.error_code, joined

    def _fill_streams_group(self) -> None:
        interval = AlterableConfig(name="streams.assignment.interval.ms", config_operation=0, value=HOUR_MS)
        resource = AlterConfigsResource(resource_type=32, resource_name=self.streams_group, configs=[interval])
        self.send(IncrementalAlterConfigsRequest(resources=[resource]))
        for number in range(STREAMS_MEMBERS):
            joined = self.send(streams_join(self.streams_group, number))
            assert not joined.error_code, joined


def streams_join(group_id: str, number: int) -> StreamsGroupHeartbeatRequest:
    """Returns the join of a member of a streams group that reads the topic "wide"."""
    return StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id=f"m{number:021}",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["wide"])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=f"p{number}",
    )
