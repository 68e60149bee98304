"""Share consumers of a server that is about to be killed. Each consumer remembers its acknowledged requests."""

from __future__ import annotations

import random
import threading

from kcore.client import Connection
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from kcore.protocol.messages.initialize_share_group_state import PartitionData as InitialState
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kcore.share.persister import share_key
from tests.crash.workers import Worker
from tests.kit import PRODUCE_VERSION, batch, make_topic, produce, wait_until

ACCEPT, RELEASE, REJECT = 1, 2, 3
PARTITIONS = 2
RETRIED = {3, 6, 14, 15, 16}
RecordPosition = tuple[int, int]
"""Partition and offset."""


class Ledger:
    """The requests that the members of one share group have sent, and the responses that they got.

    Attributes:
        name: the name of the topic and of the group.
        produced: the highest offset after a confirmed append, by partition.
        done: records whose acceptance or rejection was confirmed. They must never be delivered again.
        uncertain: records whose acceptance or rejection was sent, but not confirmed.
        counts: the highest delivery count of each record in the responses.
        delivered: the number of deliveries.
        redelivered: the number of deliveries with a count above 1.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = b""
        self.lock = threading.Lock()
        self.produced = dict.fromkeys(range(PARTITIONS), 0)
        self.done: set[RecordPosition] = set()
        self.uncertain: set[RecordPosition] = set()
        self.counts: dict[RecordPosition, int] = {}
        self.delivered = 0
        self.redelivered = 0

    def prepare(self, connection: Connection) -> None:
        """Creates the topic, and initializes the group's state at offset 0."""
        make_topic(connection, self.name, PARTITIONS)
        metadata = connection.send(MetadataRequest(topics=[MetadataRequestTopic(name=self.name)]), 12)
        self.topic_id = metadata.topics[0].topic_id
        states = [InitialState(partition=index, state_epoch=1, start_offset=0) for index in range(PARTITIONS)]
        request = InitializeShareGroupStateRequest(
            group_id=self.name, topics=[InitializeStateData(topic_id=self.topic_id, partitions=states)]
        )

        coordinator = FindCoordinatorRequest(
            key_type=2, coordinator_keys=[share_key(self.name, self.topic_id, index) for index in range(PARTITIONS)]
        )
        connection.send(coordinator, 6)  # creates the topic of the share coordinator

        def initialized() -> bool:
            codes = {part.error_code for part in connection.send(request, 0).results[0].partitions}
            assert codes <= {0, *RETRIED}, codes
            return codes == {0}

        wait_until(initialized, "the state is initialized")

    def acquired(self, response: ShareFetchResponse) -> list[RecordPosition]:
        """Checks the delivery counts in a fetch response. Returns the acquired records."""
        positions = []
        with self.lock:
            for topic in response.responses:
                for part in topic.partitions:
                    assert part.error_code in {0, *RETRIED}, part
                    for one in part.acquired_records:
                        for offset in range(one.first_offset, one.last_offset + 1):
                            record = (part.partition_index, offset)
                            assert record not in self.done, f"{record} came again, with count {one.delivery_count}"
                            before = self.counts.get(record, 0)
                            assert one.delivery_count >= before, f"{record}: count {one.delivery_count} after {before}"
                            self.counts[record] = one.delivery_count
                            self.delivered += 1
                            self.redelivered += one.delivery_count > 1
                            positions.append(record)
        return positions


class ShareMember(Worker):
    """A member that fetches, acknowledges with the next fetch, and sometimes appends records."""

    def __init__(self, name: str, rng: random.Random, ledger: Ledger) -> None:
        super().__init__(name, rng)
        self.ledger = ledger
        self.epoch = 0
        self.acquired_positions: list[RecordPosition] = []
        self.sent: dict[RecordPosition, int] = {}

    def start(self, bootstrap: str) -> None:
        """Starts with a new connection and thus a new session. The records that the member had acquired go to other
        members.
        """
        self.epoch, self.acquired_positions, self.sent = 0, [], {}
        super().start(bootstrap)

    def work(self, connection: Connection) -> None:
        if self.rng.random() < 0.4:
            self._produce(connection)
            return
        self.fetch(connection, wait_ms=20)

    def _produce(self, connection: Connection) -> None:
        partition, size = self.rng.randrange(PARTITIONS), self.rng.randint(1, 20)
        records = batch([b"job"] * size)
        response = connection.send(produce(self.ledger.name, records, partition), PRODUCE_VERSION)
        part = response.responses[0].partition_responses[0]
        if part.error_code == 0:
            with self.ledger.lock:
                end = part.base_offset + size
                self.ledger.produced[partition] = max(self.ledger.produced[partition], end)

    def fetch(self, connection: Connection, wait_ms: int, *, release: bool = True) -> int:
        """Sends one fetch with the acknowledgements of the last fetch; returns the number of acquired records."""
        ledger = self.ledger
        kinds = [ACCEPT, ACCEPT, ACCEPT, REJECT, *([RELEASE] if release else [])]
        chosen = [record for record in self.acquired_positions if self.rng.random() < 0.8 or not release]
        self.sent = {record: self.rng.choice(kinds) for record in chosen if self.epoch}
        final = {record for record, kind in self.sent.items() if kind != RELEASE}
        with ledger.lock:
            ledger.uncertain |= final
        response = connection.send(self._request(wait_ms), 2)
        if response.error_code:
            assert response.error_code in (122, 123), response
            self.epoch, self.acquired_positions = 0, []
            with ledger.lock:
                ledger.uncertain -= final
            return 0
        self.epoch += 1
        failed = {
            part.partition_index: part.acknowledge_error_code
            for topic in response.responses
            for part in topic.partitions
            if part.acknowledge_error_code
        }
        assert set(failed.values()) <= RETRIED, failed
        with ledger.lock:
            for record in final:
                if record[0] not in failed:
                    ledger.done.add(record)
                    ledger.uncertain.discard(record)
        self.acquired_positions = [
            record for record in self.acquired_positions if record not in self.sent or record[0] in failed
        ]
        self.sent = {}
        found = ledger.acquired(response)
        self.acquired_positions += found
        return len(found)

    def _request(self, wait_ms: int) -> ShareFetchRequest:
        by_partition: dict[int, list[AcknowledgementBatch]] = {index: [] for index in range(PARTITIONS)}
        for (partition, offset), kind in sorted(self.sent.items()):
            by_partition[partition].append(
                AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
            )
        partitions = [
            FetchPartition(partition_index=index, acknowledgement_batches=batches)
            for index, batches in by_partition.items()
            if batches or not self.epoch
        ]
        topics = [FetchTopic(topic_id=self.ledger.topic_id, partitions=partitions)] if partitions else []
        return ShareFetchRequest(
            group_id=self.ledger.name,
            member_id=self.name,
            share_session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=self.rng.randint(1, 40),
            batch_size=self.rng.randint(1, 40),
            share_acquire_mode=self.rng.randint(0, 1),
            topics=topics,
        )

    def check(self, connection: Connection) -> None:
        """Does nothing: each fetch checks its own response."""


def drain(connection: Connection, ledger: Ledger, rng: random.Random) -> None:
    """Accepts all remaining records, and checks that none is missing."""
    member = ShareMember("drain", rng, ledger)
    idle = 0

    def done() -> bool:
        nonlocal idle
        idle = 0 if member.fetch(connection, 200, release=False) or member.acquired_positions else idle + 1
        return idle >= 3

    wait_until(done, "everything is accepted")
    wanted = {(partition, offset) for partition, end in ledger.produced.items() for offset in range(end)}
    assert wanted <= ledger.done | ledger.uncertain, sorted(wanted - ledger.done - ledger.uncertain)[:20]
