"""Partitions: metadata changes, use as logs of coordinator shards, restarts and damage."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest

from kcore.broker.apis import describe_producers
from kcore.broker.configs.topic_effective import TopicConfigs
from kcore.broker.data import partition as partition_module
from kcore.broker.data import partitions as partitions_module
from kcore.broker.data import retention
from kcore.broker.data.partition import Partition
from kcore.broker.data.partitions import Partitions
from kcore.broker.data.producer_snapshot import decode, encode
from kcore.broker.data.producer_state import ProducerStates
from kcore.broker.metadata.image import ConfigKey, ConfigType
from kcore.broker.metadata.topics import Topics
from kcore.config.node import Config
from kcore.errors import KafkaError
from kcore.log import PartitionKey
from kcore.log.partition import SLICE_BATCHES
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from kcore.runtime import Outcome, Record, Shard, TopicInfo
from kcore.runtime.shard_services import ShardServices
from kcore_ext.batch import parse_header
from kcore_ext.broker.producers import ProducerEntry
from tests.broker.data.context import DataPlane, batch_of, values_in
from tests.broker.data.test_fetch import data_of, entry, fetch, plane_with
from tests.broker.data.test_produce import produce, request, transactional

ID = b"t" * 16
WALL_MS = 1_700_000_000_000


# ---------------------------------------------------------------- the metadata


def followed() -> tuple[DataPlane, Topics, Partitions]:
    plane = DataPlane()
    topics = Topics()
    configs = TopicConfigs(topics, Config.of({}))
    partitions = Partitions(plane.log, plane.pipeline, plane.slices, configs.effective)
    topics.listen(partitions)
    return plane, topics, partitions


def test_partitions_are_created_and_dropped_with_their_topic() -> None:
    """Logs are created and dropped in the same commit as the metadata change."""
    plane, topics, partitions = followed()
    topics.created(TopicInfo("t", ID, 2))
    assert plane.pipeline.dirty
    plane.commit()
    topics.grown(TopicInfo("t", ID, 3), 2)
    plane.commit()
    assert [partition.index for partition in partitions] == [0, 1, 2]
    assert partitions.get("t", 2) is partitions.ids[ID].get(2)
    assert [partitions.get("t", index) for index in (3, -1)] == [None, None]
    assert set(plane.log.partitions()) == {PartitionKey(ID, index) for index in range(3)}
    partition = partitions.get("t", 0)
    topics.deleted(TopicInfo("t", ID, 3))
    plane.pipeline.enlist(partition)  # type: ignore[arg-type]
    plane.commit()
    assert (list(partitions), plane.log.partitions()) == ([], [])
    assert partition is not None
    assert partition.closed


def test_a_topic_that_is_created_again_has_an_empty_log() -> None:
    """The new topic has the same name and another id; the old id is unknown."""
    plane, topics, partitions = followed()
    topics.created(TopicInfo("t", ID, 1))
    first = partitions.get("t", 0)
    assert first is not None
    first.append(bytearray(batch_of(b"v")), 0)
    plane.commit()
    topics.deleted(TopicInfo("t", ID, 1))
    topics.created(TopicInfo("t", b"u" * 16, 1))
    plane.commit()
    second = partitions.get("t", 0)
    assert second is not None
    assert (second.end_offset, partitions.ids.get(ID)) == (0, None)


def test_partitions_have_the_effective_settings_after_each_change() -> None:
    _, topics, partitions = followed()
    own = ConfigKey(ConfigType.TOPIC, "t")
    topics.image.put_setting(own, "max.message.bytes", "100")
    topics.created(TopicInfo("t", ID, 1))
    partition = partitions.get("t", 0)
    assert partition is not None
    assert (partition.config.max_message_bytes, partition.config.retention_ms) == (100, 604_800_000)
    for name, value in {"cleanup.policy": "compact,delete", "compression.type": "gzip"}.items():
        topics.image.put_setting(own, name, value)
    topics.configured(own)
    config = partition.config
    assert (config.compact, config.delete, config.compression) == (True, True, 1)
    assert config.compression_level == -1


def test_many_topics_read_a_changed_setting_of_the_broker_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change during the slices updates all topics again. A topic that is created between two slices has the
    new settings.
    """
    monkeypatch.setattr(partitions_module, "CONFIGURED_AT_ONCE", 2)
    plane = DataPlane()
    plane.slices.requests.enabled = True
    for name in ("a", "b", "c", "d", "e"):
        plane.topic(name)

    def change(limit: int) -> None:
        for name in (*plane.topics, "new"):
            plane.settings[name] = {"max.message.bytes": limit}
        plane.partitions.on_config_changed(ConfigType.BROKER, "")

    def found() -> list[int]:
        plane.slices.step()
        return [topic.partitions[0].config.max_message_bytes for topic in plane.partitions.names.values()]

    change(7)
    assert found() == [7, 7, *[1_048_588] * 3]
    assert found() == [7, 7, 7, 7, 1_048_588]
    change(8)
    plane.topic("new", max_message_bytes=8)
    plane.partitions.on_topic_deleted(plane.topics.pop("c"))
    limits = [found() for _ in range(5)][-1]
    assert limits == [8, 8, 8, 8, 8]
    assert not plane.slices
    assert not plane.partitions.outdated


# ---------------------------------------------------------------- coordinator shards


class MetadataValue:
    """A record that serves as key and as value."""

    def encode_key(self) -> bytes:
        return b"k"

    def encode_value(self, version: int) -> bytes:
        return b"fact"


class Machine:
    """A state machine that counts records."""

    def __init__(self, context: Any) -> None:
        self.replayed: list[tuple[int, int]] = []
        self.markers: list[tuple[int, bool]] = []

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        self.replayed.append((offset, producer_id))

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        self.markers.append((offset, commit))

    def decode(self, key: Any, value: Any) -> Any:
        return key, value

    def on_loaded(self) -> None:
        pass

    def on_unloaded(self) -> None:
        pass


def shard_on(plane: DataPlane) -> Shard[Machine]:
    shard = Shard(
        "__consumer_offsets",
        0,
        plane.partition("__consumer_offsets"),
        Machine,
        ShardServices(plane.pipeline, plane.wheel, plane.slices, plane.now),
    )
    shard.load()
    plane.slices.finish()
    plane.commit()
    return shard


def test_a_partition_is_the_log_of_a_shard() -> None:
    """Consumers read the shard's records, with read_committed up to an open transaction. A restart loads the shard."""
    plane = DataPlane()
    plane.topic("__consumer_offsets", cleanup_policy="compact")
    shard = shard_on(plane)
    partition = plane.partition("__consumer_offsets")
    pending = plane.send(fetch(entry(0), topic="__consumer_offsets", wait_ms=500, committed=True), 12)
    shard.perform(lambda: Outcome([Record(MetadataValue(), MetadataValue())], producer_id=7, producer_epoch=2))
    plane.commit()
    assert (pending.done, partition.last_stable_offset, partition.high_watermark) == (False, 0, 1)
    shard.perform(lambda: Outcome([Record(MetadataValue(), MetadataValue())]))
    plane.commit()
    assert not pending.done
    partition.append_marker(7, 2, 0, True, WALL_MS)
    plane.commit()
    assert values_in(data_of(pending.response).records) == [(0, b"fact"), (1, b"fact")]
    plane.restart()
    again = shard_on(plane)
    assert (again.machine.replayed, again.machine.markers) == ([(0, 7), (1, -1)], [(2, True)])
    assert plane.partition("__consumer_offsets").last_stable_offset == 3


@pytest.mark.parametrize(
    ("owner", "name"), [(ProducerStates, "first_unstable_offset"), (Partition, "_settle_producers")]
)
def test_the_last_stable_offset_moves_although_memory_was_short_after_the_commit(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = plane_with(transactional())
    partition = plane.partition("t")
    original, left = getattr(owner, name), [MemoryError("once")]

    def fails_once(self: Any) -> Any:
        if left:
            raise left.pop()
        return original(self)

    before = partition.last_stable_offset
    partition.append_marker(7, 0, 0, True, WALL_MS)
    monkeypatch.setattr(owner, name, fails_once)
    plane.commit()
    assert left == []
    assert (before, partition.last_stable_offset, partition.high_watermark) == (0, 2, 2)


def test_a_coordinators_producer_is_fenced_by_its_epoch_alone() -> None:
    """Batches of a coordinator (KIP-98) have epochs but no sequences."""
    plane = DataPlane()
    plane.topic("__consumer_offsets")
    partition = plane.partition("__consumer_offsets")
    for _ in range(2):
        partition.append(bytearray(batch_of(b"v", producer=(7, 2), transactional=True)), 0)
    with pytest.raises(KafkaError) as error:
        partition.append(bytearray(batch_of(b"v", producer=(7, 1), transactional=True)), 0)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as error:
        partition.append(bytearray(batch_of(b"v", producer=(7, 2))), 0)
    assert error.value.code is ErrorCode.INVALID_TXN_STATE
    assert partition.end_offset == 2


# ---------------------------------------------------------------- recovery


def state_of(plane: DataPlane) -> Any:
    partition = plane.partition("t")
    return (
        {producer_id: one.state() for producer_id, one in partition.producers.entries.items()},
        list(partition.producers.open_transactions.items()),
        partition.producers.aborted.entries,
        (partition.log_start_offset, partition.last_stable_offset, partition.high_watermark, partition.end_offset),
    )


def test_a_restart_restores_the_state() -> None:
    """Compares an idempotent producer, open and ended transactions, and offsets before and after a restart (KIP-98,
    KIP-360).
    """
    plane = plane_with()
    for sequence in range(7):
        produce(plane, batch_of(b"v", producer=(5, 1), sequence=sequence))
    produce(plane, transactional(producer=(6, 0)), tid="tid")
    produce(plane, transactional(producer=(8, 3)), tid="tid")
    plane.partition("t").append_marker(8, 3, 4, False, WALL_MS + 5)
    produce(plane, transactional(1, producer=(8, 3)), tid="tid")
    plane.partition("t").append_marker(8, 3, 4, True, WALL_MS + 6)
    plane.commit()
    before = state_of(plane)
    assert before[1] == [(6, 7)]
    assert before[3] == (0, 7, 12, 12)
    plane.restart()
    assert state_of(plane) == before
    assert produce(plane, batch_of(b"v", producer=(5, 1), sequence=2)).base_offset == 2


def test_a_partition_refuses_requests_during_recovery() -> None:
    """Long logs recover in slices. Meanwhile requests get a retriable error, which names the leader from v10 (Produce)
    and v16 (Fetch) on.
    """
    plane = plane_with()
    partition = plane.partition("t")
    for _ in range(SLICE_BATCHES + 1):
        partition.append(bytearray(batch_of(b"v")), 0)
    plane.commit()
    plane._open()
    partition = plane.partition("t")
    requested = 0
    while partition.recovering:
        response = plane.call(request(("t", 0, batch_of(b"v"))), 11)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [node.node_id for node in response.node_endpoints] == [1]
        assert response.responses[0].partition_responses[0].current_leader.leader_epoch == 1
        assert data_of(plane.call(fetch(entry(0)), 12)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        plane.slices.step()
        requested += 1
    assert requested > 1
    assert produce(plane, batch_of(b"v")).error_code == 0


def test_an_append_by_a_coordinator_finishes_the_recovery() -> None:
    """A shard does not wait for the slices. Its first append needs the producers' states, so it ends the recovery."""
    plane = plane_with(transactional())
    plane._open()
    partition = plane.partition("t")
    with pytest.raises(KafkaError):
        partition.append(bytearray(batch_of(b"v", producer=(7, 0))), 5)
    assert partition.producers.open_transactions == {7: 0}


def test_a_recovery_that_ends_with_its_engine_is_no_damage(caplog: pytest.LogCaptureFixture) -> None:
    plane = plane_with(transactional())
    plane._open()
    partition = plane.partition("t")
    assert partition.recovering
    plane.log.close()
    assert list(partition.recovery()) == []
    assert caplog.records == []


def test_a_damaged_log_makes_its_partition_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    """The other partitions of the node are served."""
    plane = DataPlane()
    plane.topic("t", 2)
    for index in range(2):
        for _ in range(2):
            plane.call(request(("t", index, batch_of(b"v"))), 11)
    damaged = plane.storage._partitions[plane.storage._keys[PartitionKey(plane.topics["t"].topic_id, 0)].number]
    bases, batches = damaged.lists
    damaged.lists = (bases[:1], batches[:1])
    plane.partition("t").log.high_watermark = 2
    with caplog.at_level(logging.CRITICAL):
        first = plane.partition("t")
        first.recovering, first._recovery = True, first._recover()
        first.producers.entries.clear()
        for _ in first.recovery():
            pass
    assert first.recovering
    response = plane.call(request(("t", 0, batch_of(b"v")), ("t", 1, batch_of(b"v"))), 11)
    codes = [topic.partition_responses[0].error_code for topic in response.responses]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]
    with pytest.raises(KafkaError) as error:
        first.append(bytearray(batch_of(b"v")), 9)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_many_producers_of_a_partition_are_described_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one slice, the description of 500,000 producers would block the event loop for 0.3 s."""
    plane = plane_with()
    for producer_id in range(5):
        produce(plane, batch_of(b"v", producer=(producer_id, 1), sequence=4))
    monkeypatch.setattr(describe_producers, "FEW_PRODUCERS", 2)
    sizes: list[int] = []
    describe = describe_producers.describe

    def counted(entries: list[ProducerEntry]) -> list[ProducerState]:
        sizes.append(len(entries))
        return describe(entries)

    monkeypatch.setattr(describe_producers, "describe", counted)
    requested = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 0])])
    described = plane.call(requested, 0).topics[0].partitions
    assert sizes == [2, 2, 1]
    assert [[one.producer_id for one in partition.active_producers] for partition in described] == [[*range(5)]] * 2


def test_producers_are_described() -> None:
    """Compares the whole DescribeProducers response (KIP-664)."""
    plane = plane_with()
    produce(plane, batch_of(b"v", producer=(5, 1), sequence=4))
    produce(plane, transactional(producer=(8, 3)), tid="tid")
    plane.partition("t").append_marker(9, 2, 6, True, WALL_MS + 5)
    plane.commit()
    requested = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])])
    assert plane.call(requested, 0) == DescribeProducersResponse(
        topics=[
            TopicResponse(
                name="t",
                partitions=[
                    PartitionResponse(
                        partition_index=0,
                        active_producers=[
                            ProducerState(
                                producer_id=5,
                                producer_epoch=1,
                                last_sequence=4,
                                last_timestamp=WALL_MS,
                                coordinator_epoch=-1,
                                current_txn_start_offset=-1,
                            ),
                            ProducerState(
                                producer_id=8,
                                producer_epoch=3,
                                last_sequence=0,
                                last_timestamp=WALL_MS,
                                coordinator_epoch=-1,
                                current_txn_start_offset=1,
                            ),
                            ProducerState(
                                producer_id=9,
                                producer_epoch=2,
                                last_sequence=-1,
                                coordinator_epoch=6,
                                last_timestamp=WALL_MS + 5,
                                current_txn_start_offset=-1,
                            ),
                        ],
                    ),
                    PartitionResponse(partition_index=1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ],
            )
        ]
    )


@pytest.mark.parametrize(
    ("topic", "code", "has_message"),
    [
        ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("two words", ErrorCode.INVALID_TOPIC_EXCEPTION, True),
    ],
)
def test_describing_producers_of_a_missing_partition_is_an_error(
    topic: str, code: ErrorCode, has_message: bool
) -> None:
    """For a missing partition of an existing topic, the error has no message. An illegal name gets error 17."""
    response = plane_with().call(DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[9])]), 0)
    found = response.topics[0].partitions[0]
    assert (found.error_code, found.error_message is not None) == (code, has_message)


def test_batches_carry_the_epoch_of_the_node() -> None:
    """The epoch increases by one at each start (KIP-101)."""
    plane = plane_with(batch_of(b"v"))
    plane.restart()
    produce(plane, batch_of(b"v"))
    epochs = [parse_header(batch).partition_leader_epoch for _, batch in plane.partition("t").log.batches()]
    assert epochs == [0, 1]


# ---------------------------------------------------------------- snapshots


def busy() -> DataPlane:
    """Returns a data plane with producers 5 (seven batches), 6 (an open transaction) and 8 (an aborted transaction)."""
    plane = plane_with()
    for sequence in range(7):
        produce(plane, batch_of(b"v", producer=(5, 1), sequence=sequence))
    produce(plane, transactional(producer=(6, 0)), tid="tid")
    produce(plane, transactional(producer=(8, 3)), tid="tid")
    plane.partition("t").append_marker(8, 3, 4, False, WALL_MS + 5)
    plane.commit()
    return plane


def take_snapshot(plane: DataPlane) -> int:
    taken = sum(1 for _ in plane.housekeeping.snapshot_producers(1))
    plane.commit()
    return taken


def test_a_restart_from_a_snapshot_restores_the_state() -> None:
    """The restored state equals the state from the whole log. Only the batches after the snapshot are read."""
    plane = busy()
    assert take_snapshot(plane) == 1
    assert take_snapshot(plane) == 0, "no record was appended since the last snapshot"
    partition = plane.partition("t")
    partition.append_marker(6, 0, 4, False, WALL_MS + 6)
    produce(plane, batch_of(b"v", producer=(5, 1), sequence=7))
    before = state_of(plane)
    plane.restart()
    assert state_of(plane) == before
    partition = plane.partition("t")
    assert partition.log.snapshot is not None
    assert partition.log.snapshot.offset == 10
    read = partition._read_snapshot()
    assert read is not None
    assert [base for base, _ in partition.log.batches(read[1])] == [10, 11]


def test_a_snapshot_below_the_log_start_is_ignored() -> None:
    """The snapshot may have an open transaction whose marker was deleted. Readers would wait for
    that marker forever.
    """
    plane = busy()
    take_snapshot(plane)
    partition = plane.partition("t")
    partition.append_marker(6, 0, 4, True, WALL_MS)
    partition.append_marker(5, 1, 4, True, WALL_MS)
    plane.commit()
    plane.pipeline.enlist(partition)  # type: ignore[arg-type]
    partition.log.delete_before(11)  # without the snapshot that `Partition.delete_before` adds
    plane.commit()
    plane.restart()
    assert plane.partition("t").producers.open_transactions == {}
    assert list(plane.partition("t").producers.entries) == [5]
    assert plane.partition("t").last_stable_offset == 12


def test_the_whole_log_is_replayed_if_the_snapshot_is_damaged(caplog: pytest.LogCaptureFixture) -> None:
    plane = busy()
    before = state_of(plane)
    partition = plane.partition("t")
    partition.log.put_snapshot_chunk(10, 0, b"no snapshot")
    partition.log.commit_snapshot(10)
    plane.log.commit()
    with caplog.at_level(logging.CRITICAL):
        plane.restart()
    assert state_of(plane) == before


def test_no_snapshot_is_made_of_uncommitted_state() -> None:
    """Staged appends may fail. A snapshot whose commit fails does not exist."""
    plane = busy()
    plane.send(request(("t", 0, batch_of(b"v", producer=(5, 1), sequence=7))), 11)
    assert sum(1 for _ in plane.housekeeping.snapshot_producers(1)) == 0
    plane.commit()
    assert sum(1 for _ in plane.housekeeping.snapshot_producers(1)) == 1
    plane.fail_next_commit()
    plane.commit()
    assert plane.partition("t").log.snapshot is None
    before = state_of(plane)
    plane.restart()
    assert state_of(plane) == before


def test_the_format_of_snapshots_is_stable() -> None:
    """A later version must be able to read the snapshots of this version."""
    plane = busy()
    head, producers, aborted = encode(plane.partition("t").producers)
    assert (head, aborted) == (b"\0\0\1", b"\2" + struct.pack(">qqqq", 8, 8, 9, 7))
    batches = [struct.pack(">iiqqq", n, n, n, n, WALL_MS) for n in range(2, 7)]
    entries = [
        struct.pack(">qhiqqb", 5, 1, -1, WALL_MS, -1, 5) + b"".join(batches),
        struct.pack(">qhiqqb", 6, 0, -1, WALL_MS, 7, 1) + struct.pack(">iiqqq", 0, 0, 7, 7, WALL_MS),
        struct.pack(">qhiqqb", 8, 3, 4, WALL_MS + 5, -1, 1) + struct.pack(">iiqqq", 0, 0, 8, 8, WALL_MS),
    ]
    assert producers == b"\1" + b"".join(entries)
    assert state_of_producers(decode([head, producers, aborted])) == state_of_producers(plane.partition("t").producers)


def state_of_producers(producers: ProducerStates) -> Any:
    return (
        {key: entry.state() for key, entry in producers.entries.items()},
        producers.open_transactions,
        producers.aborted.entries,
    )


@pytest.mark.parametrize("cut", [1, 31, 32, 62])
def test_a_truncated_snapshot_is_refused(cut: int) -> None:
    head, producers, _ = encode(busy().partition("t").producers)
    with pytest.raises(ValueError, match="truncated"):
        decode([head, producers[:-cut]])


def test_a_producer_with_too_many_batches_is_refused() -> None:
    head, producers, _ = encode(busy().partition("t").producers)
    with pytest.raises(ValueError, match="damaged"):
        decode([head, producers[:31] + b"\xff" + producers[32:]])


def test_partitions_without_a_snapshot_are_examined_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice examines ten partitions. A node may have 100,000 partitions, most of which need no snapshot."""
    monkeypatch.setattr(retention, "SNAPSHOT_CHECKS_A_SLICE", 10)
    plane = DataPlane()
    plane.topic("t", 35)
    assert sum(1 for _ in plane.housekeeping.snapshot_producers()) == 3


def test_markers_of_a_snapshot_are_looked_up_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "MARKERS_A_SLICE", 2)
    plane = plane_with()
    for epoch in range(6):
        produce(plane, transactional(producer=(8, epoch)), tid="tid")
        plane.partition("t").append_marker(8, epoch, 4, False, WALL_MS + 5)
        plane.commit()
    partition = plane.partition("t")
    partition.rewrite({}, 10)
    plane.commit()
    producers = ProducerStates()
    for transaction in partition.producers.aborted.entries:
        producers.aborted.add(transaction)
    assert sum(1 for _ in partition._forget_compacted_transactions(producers)) == 2, "five markers are below 10"
    assert producers.aborted.entries == partition.producers.aborted.entries
