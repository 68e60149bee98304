"""Produce: accepted and refused batches, their responses, and failed commits."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c

from kcore.broker.apis.produce import ProduceApi
from kcore.broker.data.transaction_verifier import ProduceVerifier
from kcore.broker.data.transactional_produce import TransactionalProduce
from kcore.errors import CloseConnectionError
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.compression import compress, decompress
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.runtime import Pending
from kcore_ext.batch import iter_records, parse_header, validate
from tests.broker.data.context import DataPlane, batch_of

WALL_MS = 1_700_000_000_000
FAR_MS = WALL_MS + 3_600_001


def request(*parts: tuple[str, int, bytes | None], acks: int = -1, tid: str | None = None) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=tid,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=records)])
            for name, index, records in parts
        ],
    )


def response(*responses: PartitionProduceResponse, name: str = "t") -> ProduceResponse:
    return ProduceResponse(
        responses=[TopicProduceResponse(name=name, partition_responses=[response]) for response in responses]
    )


def taken(base_offset: int, append_time_ms: int = -1, index: int = 0) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=0
    )


def refused(code: ErrorCode, log_start_offset: int = -1, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        error_code=code, base_offset=-1, log_start_offset=log_start_offset, error_message=message
    )


def produce(plane: DataPlane, records: bytes, version: int = 11, **more: Any) -> PartitionProduceResponse:
    response: PartitionProduceResponse = (
        plane.call(request(("t", 0, records), **more), version).responses[0].partition_responses[0]
    )
    return response


def stored(plane: DataPlane, topic: str = "t") -> list[bytes]:
    return [bytes(batch) for _, batch in plane.partition(topic).log.batches()]


def with_header(records: bytes, at: int, layout: str, value: int) -> bytes:
    """Changes a field of a batch's header and updates the CRC."""
    batch = bytearray(records)
    struct.pack_into(layout, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def test_a_response_waits_for_the_commit() -> None:
    """An append is neither acknowledged nor visible to readers before it is durable."""
    plane = DataPlane()
    plane.topic("t")
    pending = plane.send(request(("t", 0, batch_of(b"v"))), 11)
    assert isinstance(pending, Pending)
    assert (pending.done, pending.parked) == (False, False)
    partition = plane.partition("t")
    assert (partition.end_offset, partition.high_watermark) == (1, 0)
    plane.commit()
    assert partition.high_watermark == 1
    assert pending.response == response(taken(0))


def test_a_failed_commit_is_a_storage_error_and_stores_nothing() -> None:
    """KAFKA_STORAGE_ERROR is retriable; a retry with the same sequence is not a duplicate."""
    plane = DataPlane()
    plane.topic("t")
    produced = request(("t", 0, batch_of(b"v", producer=(7, 0), sequence=0)))
    pending = plane.send(produced, 11)
    plane.fail_next_commit()
    assert not plane.commit()
    assert pending.response == response(refused(ErrorCode.KAFKA_STORAGE_ERROR))
    partition = plane.partition("t")
    assert (partition.end_offset, partition.high_watermark, partition.producers.entries) == (0, 0, {})
    assert plane.call(produced, 11) == response(taken(0))
    assert plane.call(produced, 11).responses[0].partition_responses[0].base_offset == 0
    assert len(stored(plane)) == 1


def test_the_batch_is_stored_unchanged() -> None:
    """The log sets only base offset and leader epoch; compressed records are unchanged."""
    plane = DataPlane()
    plane.topic("t")
    for codec in range(5):
        sent = batch_of(*[b"v" * 100] * 10, compression=codec, compress=compress)
        assert parse_header(sent).compression == codec
        assert produce(plane, sent) == taken(10 * codec)
        kept = stored(plane)[-1]
        assert kept[16:] == sent[16:]
        assert parse_header(kept).base_offset == 10 * codec


def test_topics_are_named_by_id_from_v13_on() -> None:
    plane = DataPlane()
    topic = plane.topic("t")
    data = [PartitionProduceData(index=0, records=batch_of(b"v"))]
    requested = ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(topic_id=topic.topic_id, partition_data=data),
            TopicProduceData(topic_id=b"x" * 16, partition_data=data),
        ],
    )
    assert plane.call(requested, 13) == ProduceResponse(
        responses=[
            TopicProduceResponse(topic_id=topic.topic_id, partition_responses=[taken(0)]),
            TopicProduceResponse(topic_id=b"x" * 16, partition_responses=[refused(ErrorCode.UNKNOWN_TOPIC_ID)]),
        ]
    )


def test_the_log_sets_log_append_time() -> None:
    """The log sets bit 3 of the attributes, the largest timestamp and the CRC. The response has the append time. The
    node does not check the bounds of timestamps.
    """
    plane = DataPlane()
    plane.topic("t", message_timestamp_type="LogAppendTime")
    plane.clock.advance(5)
    plane.now.update()
    assert produce(plane, batch_of(b"a", b"b", timestamp_ms=FAR_MS)) == taken(0, WALL_MS + 5)
    kept = stored(plane)[0]
    validate(kept)
    assert parse_header(kept).base_timestamp_ms == FAR_MS
    assert [record.timestamp_ms for record in iter_records(kept)] == [WALL_MS + 5] * 2


def test_producers_must_not_set_the_append_time() -> None:
    plane = DataPlane()
    plane.topic("t", message_timestamp_type="LogAppendTime")
    response = produce(plane, batch_of(b"a", log_append_time=True))
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in response.record_errors] == [0]


def test_a_wrong_largest_timestamp_is_corrected() -> None:
    """Look-ups by time use the batch header, so its timestamp must agree with the records."""
    plane = DataPlane()
    plane.topic("t")
    assert produce(plane, with_header(batch_of(b"a"), 35, ">q", WALL_MS + 999)) == taken(0)
    assert validate(stored(plane)[0]).max_timestamp_ms == WALL_MS


def test_records_without_timestamps_are_accepted() -> None:
    plane = DataPlane()
    plane.topic("t", message_timestamp_before_max_ms=1000)
    assert produce(plane, batch_of(b"a", timestamp_ms=-1)) == taken(0)
    response = produce(plane, batch_of(b"a", timestamp_ms=WALL_MS - 1001))
    assert (response.error_code, response.log_start_offset) == (ErrorCode.INVALID_TIMESTAMP, 0)


def test_compacted_topics_need_keys() -> None:
    """The response lists every record without a key, and the whole batch is refused."""
    plane = DataPlane()
    plane.topic("t", cleanup_policy="compact")
    response = produce(plane, batch_of(b"a", b"b", b"c", keys={1: b"k"}))
    text = "a record of a compacted topic needs a key"
    assert response == PartitionProduceResponse(
        error_code=ErrorCode.INVALID_RECORD,
        base_offset=-1,
        log_start_offset=0,
        record_errors=[BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text) for i in (0, 2)],
        error_message=f"2 of 3 records are refused: {text}",
    )
    assert produce(plane, batch_of(b"a", keys={0: b"k"})) == taken(0)


@pytest.mark.parametrize("source", [0, 1, 4])
@pytest.mark.parametrize(("target", "codec"), [("gzip", 1), ("zstd", 4), ("uncompressed", 0), ("producer", None)])
def test_batches_are_stored_in_the_codec_of_the_topic(source: int, target: str, codec: int | None) -> None:
    """compression.type changes the codec of the batch, but not its records, producer or sequences."""
    plane = DataPlane()
    plane.topic("t", compression_type=target)
    sent = batch_of(*[b"v" * 50] * 20, producer=(7, 3), sequence=0, compression=source, compress=compress)
    assert produce(plane, sent) == taken(0)
    kept = stored(plane)[0]
    header = validate(kept, decompress=decompress)
    assert header.compression == (source if codec is None else codec)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
    assert list(iter_records(kept, decompress=decompress)) == list(iter_records(sent, decompress=decompress))


def test_a_batch_that_compression_makes_longer_is_stored_in_the_codec_of_the_topic() -> None:
    """Kafka's brokers also compress a batch that becomes longer."""
    plane = DataPlane()
    plane.topic("t", compression_type="gzip")
    sent = batch_of(b"a", b"b")
    assert produce(plane, sent) == taken(0)
    kept = stored(plane)[0]
    assert validate(kept, decompress=decompress).compression == 1
    assert len(kept) > len(sent)
    assert list(iter_records(kept, decompress=decompress)) == list(iter_records(sent))


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    plane = DataPlane()
    plane.topic("t", segment_bytes=100)
    assert produce(plane, batch_of(b"v" * 200)) == refused(ErrorCode.RECORD_LIST_TOO_LARGE)


def test_damaged_compressed_records_are_refused() -> None:
    """A consumer could not read damaged records."""
    plane = DataPlane()
    plane.topic("t")
    sent = bytearray(batch_of(*[b"v" * 50] * 20, compression=1, compress=compress))
    sent[80] ^= 0xFF
    assert produce(plane, with_header(bytes(sent), 17, ">I", 0)) == refused(ErrorCode.INVALID_RECORD, 0)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"\0" * 11, ErrorCode.INVALID_RECORD),
        (batch_of(b"v")[:-1], ErrorCode.INVALID_RECORD),
        (batch_of(b"v") + batch_of(b"v"), ErrorCode.INVALID_RECORD),
        (batch_of(b"v") + b"\0" * 12, ErrorCode.CORRUPT_MESSAGE),
        (with_header(batch_of(b"v"), 57, ">i", 2), ErrorCode.INVALID_RECORD),
    ],
)
def test_bytes_other_than_one_whole_batch_are_refused(records: bytes | None, code: ErrorCode) -> None:
    """The other partitions of the request are served."""
    plane = DataPlane()
    plane.topic("t", 2)
    response = plane.call(request(("t", 0, records), ("t", 1, batch_of(b"v"))), 11)
    codes = [topic.partition_responses[0].error_code for topic in response.responses]
    assert codes == [code, 0]


@pytest.mark.parametrize("records", [b"\0" * 12, b"\0" * 11 + b"\x31" + b"\0" * 4 + b"\x03" + b"\0" * 60])
def test_bytes_that_are_not_a_batch_fail_the_whole_request(records: bytes) -> None:
    """As in Kafka, the node first reads the headers of all batches, to find transactional batches. If it cannot read a
    header, every partition gets CORRUPT_MESSAGE.
    """
    plane = DataPlane()
    plane.topic("t", 2)
    response = plane.call(request(("t", 0, records), ("t", 1, batch_of(b"v"))), 11)
    for topic in response.responses:
        assert topic.partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert topic.partition_responses[0].error_message
    assert stored(plane) == []


def test_zstd_needs_v7() -> None:
    plane = DataPlane()
    plane.topic("t")
    sent = batch_of(*[b"v" * 50] * 20, compression=4, compress=compress)
    assert produce(plane, sent, 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(plane, sent, 7).error_code == 0


def commit_record() -> tuple[bytes, bytes]:
    """Encodes key and value of a committed offset as a coordinator does."""
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    return key.encode_key(), OffsetCommitValue(offset=1, metadata="", commit_timestamp=0).encode_value(3)


def test_clients_cannot_write_to_internal_topics() -> None:
    """Only the admin client may write to internal topics, if an authorizer allows it, and only records that a
    coordinator can load.
    """
    key, value = commit_record()
    requested = request(("__consumer_offsets", 0, batch_of(value, keys={0: key})))
    invalid_topic = response(refused(ErrorCode.INVALID_TOPIC_EXCEPTION), name="__consumer_offsets")
    for authorizer, client_id, expected in (
        (None, "c", invalid_topic),
        (None, "__admin_client", invalid_topic),
        (Denying(), "c", invalid_topic),
        (Denying(), "__admin_client", response(taken(0), name="__consumer_offsets")),
    ):
        plane = DataPlane(authorizer=authorizer)
        plane.topic("__consumer_offsets", cleanup_policy="compact")
        assert plane.call(requested, 11, client_id=client_id) == expected


@pytest.mark.parametrize("damaged", ["key", "value"])
def test_records_that_a_coordinator_cannot_load_are_refused(damaged: str) -> None:
    key, value = commit_record()
    plane = DataPlane(authorizer=Denying())
    plane.topic("__consumer_offsets", cleanup_policy="compact")
    sent = batch_of(value[:-1] if damaged == "value" else value, keys={0: key[:-1] if damaged == "key" else key})
    response = plane.call(request(("__consumer_offsets", 0, sent)), 11, client_id="__admin_client")
    (partition,) = response.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert partition.error_message.startswith("the coordinator cannot decode the record at offset 0: ")
    assert stored(plane, "__consumer_offsets") == []


def test_without_acks_there_is_no_response_and_errors_close_the_connection() -> None:
    plane = DataPlane()
    plane.topic("t")
    assert plane.call(request(("t", 0, batch_of(b"v")), acks=0), 11) is None
    assert len(stored(plane)) == 1
    for bad in (request(("absent", 0, batch_of(b"v")), acks=0), request(("t", 0, b"\0" * 12), acks=0)):
        with pytest.raises(CloseConnectionError):
            plane.send(bad, 11)


class Denying:
    """An authorizer that denies the listed operations."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.denied = set(denied)

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        return (operation, resource_type, resource_name) not in self.denied


def test_topics_need_write_permission() -> None:
    """The permission is checked before the topic is looked up."""
    denied = [(Operation.WRITE, ResourceType.TOPIC, name) for name in ("t", "absent")]
    plane = DataPlane(authorizer=Denying(*denied))
    plane.topic("t")
    requested = request(("t", 0, batch_of(b"v")), ("absent", 0, batch_of(b"v")))
    codes = [topic.partition_responses[0].error_code for topic in plane.call(requested, 11).responses]
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2


# ---------------------------------------------------------------- transactions


def transactional(sequence: int = 0, producer: tuple[int, int] = (7, 0)) -> bytes:
    return batch_of(b"v", producer=producer, sequence=sequence, transactional=True)


class Coordinator(ProduceVerifier):
    """Coordinator that stores requests until the test completes them."""

    def __init__(self) -> None:
        self.requests_of_verification: list[Any] = []

    def verify(self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Any, add: bool,
               done: Any) -> None:  # fmt: skip
        self.requests_of_verification.append(((transactional_id, producer_id, producer_epoch, partitions, add), done))

    def respond(self, code: ErrorCode) -> None:
        (_, _, _, partitions, _), done = self.requests_of_verification.pop(0)
        done(dict.fromkeys(partitions, code))


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    """Every partition gets the error, even a missing one: the node checks the transactional id before any partition."""
    plane = DataPlane()
    plane.topic("t")
    requested = request(("t", 0, transactional()), ("absent", 0, batch_of(b"v")))
    codes = [topic.partition_responses[0].error_code for topic in plane.call(requested, 11).responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    denied = Denying((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tid"))
    plane = DataPlane(authorizer=denied)
    plane.topic("t")
    assert produce(plane, transactional(), tid="tid").error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_request_has_one_transactional_producer() -> None:
    plane = DataPlane(verifier=Coordinator())
    plane.topic("t", 2)
    requested = request(("t", 0, transactional()), ("t", 1, transactional(producer=(8, 0))), tid="tid")
    for topic in plane.call(requested, 11).responses:
        assert topic.partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert topic.partition_responses[0].error_message


def test_without_a_coordinator_transactions_cannot_be_verified() -> None:
    """As for an unreachable coordinator, clients get NOT_ENOUGH_REPLICAS with a message, and retry."""
    plane = DataPlane()
    plane.topic("t")
    response = produce(plane, transactional(), tid="tid")
    assert (response.error_code, response.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert response.error_message
    assert stored(plane) == []


def test_the_first_batch_of_a_transaction_is_verified_and_the_rest_is_not() -> None:
    """In v11 the coordinator only verifies the partition; in v12 it adds the partition. The request is parked until the
    coordinator responds.
    """
    for version, adds in ((11, False), (12, True)):
        coordinator = Coordinator()
        plane = DataPlane(verifier=coordinator)
        plane.topic("t")
        pending = plane.send(request(("t", 0, transactional()), tid="tid"), version)
        assert (pending.done, pending.parked, stored(plane)) == (False, True, [])
        assert coordinator.requests_of_verification[0][0] == ("tid", 7, 0, [("t", 0)], adds)
        coordinator.respond(ErrorCode.NONE)
        plane.commit()
        assert pending.response == response(taken(0))
        assert produce(plane, transactional(1), version, tid="tid") == taken(1)
        assert coordinator.requests_of_verification == []
        partition = plane.partition("t")
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 2)


@pytest.mark.parametrize(
    ("version", "received", "code"),
    [
        (11, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (11, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_error_codes_of_the_coordinator_are_translated(version: int, received: ErrorCode, code: ErrorCode) -> None:
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    pending = plane.send(request(("t", 0, transactional()), tid="tid"), version)
    coordinator.respond(received)
    response = pending.response.responses[0].partition_responses[0]
    assert (response.error_code, response.base_offset, response.log_start_offset) == (code, -1, -1)
    assert (response.error_message is not None) == (
        code in {ErrorCode.INVALID_TXN_STATE, ErrorCode.NOT_ENOUGH_REPLICAS}
    )


def test_v12_retries_while_the_last_transaction_is_completed() -> None:
    """While the previous transaction is being completed, the node repeats the request to the coordinator every 20 ms.
    After 100 ms it returns CONCURRENT_TRANSACTIONS.
    """
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    pending = plane.send(request(("t", 0, transactional()), tid="tid"), 12)
    for _ in range(5):
        coordinator.respond(ErrorCode.CONCURRENT_TRANSACTIONS)
        plane.advance(19)
        assert (pending.done, coordinator.requests_of_verification) == (False, [])
        plane.advance(1)
        assert len(coordinator.requests_of_verification) == 1
    coordinator.respond(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert pending.response.responses[0].partition_responses[0].error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_transaction_begins_once_the_last_one_is_completed() -> None:
    """The marker of the previous transaction arrives between two retries. This marker does not fence the next
    transaction.
    """
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    pending = plane.send(request(("t", 0, transactional(producer=(7, 1))), tid="tid"), 12)
    coordinator.respond(ErrorCode.CONCURRENT_TRANSACTIONS)
    plane.partition("t").append_marker(7, 1, 0, True, WALL_MS, 2)
    plane.advance(20)
    coordinator.respond(ErrorCode.NONE)
    plane.commit()
    assert pending.response == response(taken(1))
    assert plane.partition("t").producers.verification_guards == {}


def test_a_newer_epoch_between_two_retries_fences() -> None:
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    pending = plane.send(request(("t", 0, transactional(producer=(7, 1))), tid="tid"), 12)
    coordinator.respond(ErrorCode.CONCURRENT_TRANSACTIONS)
    plane.partition("t").append_marker(7, 2, 0, False, WALL_MS)
    plane.advance(20)
    coordinator.respond(ErrorCode.NONE)
    plane.commit()
    assert pending.response == response(refused(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert plane.partition("t").producers.verification_guards == {}


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("step", ["finish", "settle"])
def test_an_internal_error_after_the_verification_is_the_response(
    step: str, acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this response, the client would wait forever, because no other code completes the request."""
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    pending = plane.send(request(("t", 0, transactional()), tid="tid", acks=acks), 11)
    assert not pending.done

    def fail(*arguments: Any) -> Any:
        raise ValueError("a bug")

    owner, name = (ProduceApi, "finish") if step == "finish" else (TransactionalProduce, "_settle")
    monkeypatch.setattr(owner, name, fail)
    coordinator.respond(ErrorCode.NONE)
    expected = response(refused(ErrorCode.UNKNOWN_SERVER_ERROR)) if acks else None
    assert (pending.done, pending.response) == (True, expected)


def test_a_producer_has_one_outstanding_verification() -> None:
    """A newer request with the same ids and epoch supersedes the older request, which gets NOT_ENOUGH_REPLICAS.
    Requests with different epochs all go to the coordinator, which accepts or refuses each of them.
    """
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    first, second, third, fourth = (
        plane.send(request(("t", 0, transactional(producer=producer)), tid="tid"), 11)
        for producer in ((7, 1), (7, 1), (7, 2), (7, 0))
    )
    assert [pending.done for pending in (first, second, third, fourth)] == [True, False, False, False]
    assert first.response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.respond(ErrorCode.NONE)  # the result for the first request, which was superseded
    for code in (ErrorCode.PRODUCER_FENCED, ErrorCode.NONE, ErrorCode.PRODUCER_FENCED):
        coordinator.respond(code)
    plane.commit()
    assert [pending.response for pending in (second, third, fourth)] == [
        response(refused(ErrorCode.INVALID_PRODUCER_EPOCH)),
        response(taken(0)),
        response(refused(ErrorCode.INVALID_PRODUCER_EPOCH)),
    ]


def test_a_late_verification_does_not_open_a_transaction_again() -> None:
    """A marker that is written before the verification ends removes the partition's verification guard (KIP-890), so
    the batch is refused.
    """
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    pending = plane.send(request(("t", 0, transactional()), tid="tid"), 11)
    plane.partition("t").append_marker(7, 0, 0, False, WALL_MS)
    coordinator.respond(ErrorCode.NONE)
    plane.commit()
    assert pending.response == response(refused(ErrorCode.INVALID_TXN_STATE, 0))
    assert plane.partition("t").producers.open_transactions == {}


def test_no_batch_overtakes_the_first_of_a_transaction() -> None:
    """While sequence 0 is being verified, sequence 1 cannot be appended first."""
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    plane.send(request(("t", 0, transactional(0)), tid="tid"), 12)
    second = plane.send(request(("t", 0, transactional(1)), tid="tid"), 12)
    coordinator.requests_of_verification.pop(0)
    coordinator.respond(ErrorCode.NONE)
    code = second.response.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
