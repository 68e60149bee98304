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
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
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
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "kcore.durability": "memory",
    "listeners": "127.0.0.1:0",
}


class State:
    """An engine, filled without sockets.

    Attributes:
        engine: the engine.
        names: the names of its small topics.
        groups: the ids of its groups.
        big_group: a group whose description has 900 KB.
        producer: an open producer of a transaction over all partitions of the topic "wide".
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
        self._fill()

    def send(self, request: Any, version: int | None = None) -> Any:
        """Decides a request, commits, and returns its response."""
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
