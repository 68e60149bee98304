"""The fast path of Produce gives the same responses, appends and producer states as the generic path, for any request.

Two nodes get the same requests. One node serves them normally. The other uses only `ProduceApi.handle`, which defines
the correct result. After every step both nodes must have the same responses, bytes, producers and offsets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kcore.broker.data.transaction_verifier import ProduceVerifier
from kcore.errors import CloseConnectionError
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.compression import compress, decompress
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.runtime import Pending, RequestContext
from kcore_ext.batch import BatchBuilder
from kcore_ext.broker.produce import ProduceFastPath
from tests.broker.data.context import DataPlane, batch_of
from tests.kit import serve

WALL_MS = 1_700_000_000_000
MAX_SEQUENCE = 2**31 - 1
TOPICS: dict[str, dict[str, Any]] = {
    "t": {},
    "u": {},
    "keys": {"cleanup_policy": ["compact"]},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "lz4": {"compression_type": "lz4"},
    "plain": {"compression_type": "uncompressed"},
    "small": {"max_message_bytes": 150},
    "pieces": {"segment_bytes": 150},
    "recent": {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 1000},
    "__consumer_offsets": {},
}
PARTITIONS = 2


class Coordinator(ProduceVerifier):
    """Coordinator that confirms one transactional id and denies another. For all other ids the test
    sets the results.
    """

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def verify(self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Any, add: bool,
               done: Any) -> None:  # fmt: skip
        request = (partitions, done)
        if transactional_id == "later":
            self.requests.append(request)
        else:
            self.respond(request, ErrorCode.NONE if transactional_id == "yes" else ErrorCode.INVALID_TXN_STATE)

    @staticmethod
    def respond(request: Any, code: ErrorCode) -> None:
        partitions, done = request
        done(dict.fromkeys(partitions, code))


class Strict:
    """Authorizer that denies writes to one topic, and writes with one transactional id."""

    def __init__(self) -> None:
        self.checked: list[tuple[Any, str]] = []

    def allowed(self, context: Any, operation: Operation, resource_type: Any, resource_name: str) -> bool:
        assert operation is Operation.WRITE
        self.checked.append((resource_type, resource_name))
        return resource_name not in {"u", "no"}


def with_header(records: bytes, at: int, layout: str, value: int) -> bytes:
    """Changes a field of a batch's header and updates the CRC."""
    batch = bytearray(records)
    struct.pack_into(layout, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


HEADER_FIELDS = {
    "base offset": (0, ">q", st.sampled_from([1, -1])),
    "length": (8, ">i", st.sampled_from([48, 49, 60, 1 << 20])),
    "leader epoch": (12, ">i", st.just(7)),
    "magic": (16, ">b", st.sampled_from([0, 1, 3, -1])),
    "attributes": (21, ">h", st.sampled_from([4, 5, 7, 8, 0x20, 0x30, 0x40, 0x80])),
    "last delta": (23, ">i", st.sampled_from([-1, 0, 1, 5, MAX_SEQUENCE])),
    "base timestamp": (27, ">q", st.sampled_from([-1, 0, 2**63 - 1, -(2**63), WALL_MS + 10])),
    "largest timestamp": (35, ">q", st.sampled_from([-1, 0, 2**63 - 1, WALL_MS + 10])),
    "producer": (43, ">q", st.sampled_from([-1, 1, 2, -7])),
    "epoch": (51, ">h", st.sampled_from([-1, 0, 3, 32767])),
    "sequence": (53, ">i", st.sampled_from([-1, 0, 3, MAX_SEQUENCE])),
    "count": (57, ">i", st.sampled_from([-1, 0, 2, 5, MAX_SEQUENCE])),
}
CHANGES = st.one_of(
    st.sampled_from(sorted(HEADER_FIELDS)).flatmap(
        lambda name: st.tuples(st.just("header"), st.just(HEADER_FIELDS[name][:2]), HEADER_FIELDS[name][2])
    ),
    st.tuples(st.just("byte"), st.integers(0, 200), st.integers(1, 255)),
    st.tuples(st.just("record"), st.integers(61, 200), st.integers(1, 255)),
    st.tuples(st.just("record"), st.sampled_from([63, 64, 65]), st.sampled_from([1, 2, 4])),  # deltas of the first
    st.tuples(st.just("cut"), st.integers(0, 200), st.just(0)),
    st.tuples(st.just("extend"), st.integers(1, 200), st.just(0)),
    st.just(("remove", 0, 0)),
)


def changed(records: bytes, change: Any) -> bytes | None:
    """Returns the batch after a change (kind, position, value), or None for the kind `remove`."""
    kind, at, value = change
    match kind:
        case "header":
            return with_header(records, at[0], at[1], value)
        case "byte":
            at %= len(records)
            return records[:at] + bytes([records[at] ^ value]) + records[at + 1 :]
        case "record":
            at = min(at, len(records) - 1)
            return with_header(records, at, ">B", records[at] ^ value)
        case "cut":
            return records[:at]
        case "extend":
            return records + records[:at]
    return None


RECORDS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, -5, 2000, -2000, 7_200_000, -WALL_MS - 1]),
        st.sampled_from([b"k", b"k", None]),
        st.integers(0, 3),
    ),
    max_size=3,
)


@dataclass(frozen=True)
class Spec:
    """Description of a batch. The batch has `count` common records or, if given, the uncommon `records`. The fields
    from `codec` on are other uncommon properties.
    """

    producer_id: int
    transactional: bool
    count: int
    records: list[tuple[int, bytes | None, int]] | None = None
    codec: int = 0
    epoch: int = 0
    step: int | str = 0
    change: Any = None


ODDITIES = st.one_of(
    st.fixed_dictionaries({"records": RECORDS}),
    st.fixed_dictionaries({"codec": st.integers(1, 4)}),
    st.fixed_dictionaries({"codec": st.integers(1, 4), "change": CHANGES}),
    st.fixed_dictionaries({"epoch": st.integers(1, 2)}),
    st.fixed_dictionaries({"step": st.sampled_from([1, -1, "again"])}),
    st.fixed_dictionaries({"transactional": st.booleans()}),
    st.fixed_dictionaries({"producer_id": st.integers(0, 2)}),
    st.fixed_dictionaries({"change": CHANGES}),
    st.fixed_dictionaries({"change": CHANGES, "records": RECORDS}),
)


@st.composite
def requests(draw: Any) -> list[tuple[str, list[tuple[int, Spec]]]]:
    """Draws topics with batches for their partitions. At most one property of the request is uncommon."""
    producer_id = draw(st.integers(0, 2))
    transactional = bool(producer_id) and draw(st.sampled_from([False, True]))
    parts = [
        (
            draw(st.sampled_from(["t", *TOPICS])),
            [
                (index, Spec(producer_id, transactional, draw(st.integers(1, 2))))
                for index in draw(st.sampled_from([[0], [0], [1], [0, 1], [1, 0], [0, 0]]))
            ],
        )
        for _ in range(draw(st.sampled_from([1, 1, 1, 2])))
    ]
    if draw(st.booleans()):
        _, batches = draw(st.sampled_from(parts))
        position = draw(st.integers(0, len(batches) - 1))
        index, spec = batches[position]
        batches[position] = index, replace(spec, **draw(ODDITIES))
    elif draw(st.integers(0, 5)) == 5:
        odd: tuple[str, list[tuple[int, Spec]]] = draw(
            st.sampled_from(
                [("unknown", parts[0][1]), ("t", []), ("t", [(2, Spec(0, False, 1))]), ("u", [(-1, Spec(0, False, 1))])]
            )
        )
        parts.insert(draw(st.integers(0, 1)), odd)
    return parts


class Pair(RuleBasedStateMachine):
    """Two nodes that get the same requests: one has the fast path, the other does not."""

    @initialize(
        verify=st.booleans(),
        authorized=st.sampled_from([False, False, False, True]),
        start=st.sampled_from([0, 0, MAX_SEQUENCE - 3, MAX_SEQUENCE]),
    )
    def begin(self, verify: bool, authorized: bool, start: int) -> None:
        config = {"transaction.partition.verification.enable": str(verify).lower()}
        self.nodes = [
            DataPlane(config=config, verifier=Coordinator(), authorizer=Strict() if authorized else None)
            for _ in range(2)
        ]
        self.pending: list[tuple[Any, Any]] = []
        self.start = start
        for node in self.nodes:
            for name, given in TOPICS.items():
                node.topic(name, PARTITIONS, **given)

    def bytes_of(self, topic: str, index: int, spec: Spec) -> bytes | None:
        producer_id, sequence = spec.producer_id, -1
        if producer_id:
            partition = self.nodes[1].partitions.get(topic, index)
            entry = None if partition is None else partition.producers.entries.get(producer_id)
            if entry is None:
                sequence = self.start if spec.step == 0 else 0
            elif spec.step == "again":
                sequence = entry.batches[-1].first_sequence if entry.batches else 0
            else:
                sequence = max(entry.last_sequence + 1 + int(spec.step), 0) & MAX_SEQUENCE
        builder = BatchBuilder(
            1 << 20,
            base_timestamp_ms=WALL_MS,
            producer_id=producer_id or -1,
            producer_epoch=spec.epoch if producer_id else -1,
            base_sequence=sequence,
            transactional=spec.transactional and bool(producer_id),
            compression=spec.codec,
            compress=compress,
        )
        records = [(0, b"k", 1)] * spec.count if spec.records is None else spec.records
        for ahead_ms, key, size in records:
            assert builder.append(WALL_MS + ahead_ms, key, b"v" * (30 * size))
        batch = builder.build() if records else builder.build(last_offset_delta=0)
        return batch if spec.change is None else changed(batch, spec.change)

    @rule(
        parts=requests(),
        version=st.sampled_from([3, 6, 7, 9, 10, 11, 11, 12, 13]),
        acks=st.sampled_from([-1, -1, -1, -1, 1, 1, 1, 0, 2]),
        tid=st.sampled_from(["yes", "yes", "yes", "yes", "yes", "later", "no", None]),
        client_id=st.sampled_from(["c", "c", "c", "__admin_client"]),
        as_client=st.booleans(),
    )
    def produce(self, parts: Any, version: int, acks: int, tid: str | None, client_id: str, as_client: bool) -> None:
        request = ProduceRequest(
            transactional_id=tid,
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=name if version < 13 else "",
                    topic_id=self.nodes[1].topics[name].topic_id if version >= 13 and name in TOPICS else bytes(16),
                    partition_data=[
                        PartitionProduceData(index=index, records=self.bytes_of(name, index, spec))
                        for index, spec in batches
                    ],
                )
                for name, batches in parts
            ],
        )
        if as_client:
            request = ProduceRequest.decode(request.encode(version), version)
        context = RequestContext(version, client_id=client_id)
        responses = []
        for node, handle in zip(
            self.nodes, (partial(serve, self.nodes[0].produce_api), self.nodes[1].produce_api.handle), strict=True
        ):
            try:
                responses.append(handle(context, request))
            except CloseConnectionError as error:
                responses.append(str(error))
            assert node.clock.wall_ms() == WALL_MS
        self.pending.append((responses[0], responses[1]))
        self.compare_authorized_topics()
        self.compare()

    @rule(index=st.integers(0, PARTITIONS - 1), producer_id=st.sampled_from([1, 2]), commit=st.booleans())
    def end(self, index: int, producer_id: int, commit: bool) -> None:
        for node in self.nodes:
            entry = node.partition("t", index).producers.entries.get(producer_id)
            node.partition("t", index).append_marker(producer_id, entry.epoch if entry else 0, 0, commit, WALL_MS)
        self.compare()

    @rule(code=st.sampled_from([ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def verified(self, code: ErrorCode) -> None:
        """Makes the coordinator complete its oldest request with `code`."""
        for node in self.nodes:
            assert isinstance(node.verifier, Coordinator)
            if node.verifier.requests:
                node.verifier.respond(node.verifier.requests.pop(0), code)
        self.compare()

    @rule(fails=st.sampled_from([False, False, False, True]))
    def commit(self, fails: bool) -> None:
        for node in self.nodes:
            if fails and node.pipeline.dirty:
                node.fail_next_commit()
            node.commit()
        self.compare()

    @rule()
    def restart(self) -> None:
        for node in self.nodes:
            node.restart()
        self.pending.clear()
        self.compare()

    def compare_authorized_topics(self) -> None:
        """Checks that both nodes authorize the same topics in the same order. Repeated checks of a topic do not count,
        because the generic path authorizes declined requests again.
        """
        fast, generic = (node.authorizer.checked if node.authorizer else [] for node in self.nodes)
        assert list(dict.fromkeys(fast)) == list(dict.fromkeys(generic))
        for calls in (fast, generic):
            calls.clear()

    def compare(self) -> None:
        for responses in self.pending:
            made = [
                (response.done, response.parked, response.response) if isinstance(response, Pending) else response
                for response in responses
            ]
            assert made[0] == made[1]
        self.pending = [pair for pair in self.pending if isinstance(pair[0], Pending) and not pair[0].done]
        assert self.state(self.nodes[0]) == self.state(self.nodes[1])

    @staticmethod
    def state(node: DataPlane) -> Any:
        assert isinstance(node.verifier, Coordinator)
        return (
            len(node.verifier.requests),
            node.pipeline.dirty,
            node.pipeline.waiting,
            [
                (
                    partition.end_offset,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.unacknowledged_end,
                    [bytes(batch) for _, batch in partition.log.batches()],
                    [(producer_id, entry.state()) for producer_id, entry in partition.producers.entries.items()],
                    list(partition.producers.open_transactions.items()),
                    {
                        (producer_id, *key): (guard.lowest_sequence, guard.supports_epoch_bump, guard.created_ms)
                        for producer_id, own in partition.producers.verification_guards.items()
                        for key, guard in own.items()
                    },
                )
                for partition in node.partitions
            ],
        )


TestPair = Pair.TestCase
TestPair.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


# ---------------------------------------------------------------- requests that the fast path serves


def request_of(*records: bytes, topics: tuple[str, ...] = ("t",), tid: str | None = None) -> ProduceRequest:
    """Makes a request that sends batch number n to partition n of every topic."""
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(records)]
    return ProduceRequest(
        transactional_id=tid, acks=-1, topic_data=[TopicProduceData(name=name, partition_data=data) for name in topics]
    )


def plane_of(**more: Any) -> DataPlane:
    plane = DataPlane(**more)
    for name in ("t", "u"):
        plane.topic(name, 2)
    return plane


def is_fast(plane: DataPlane, request: ProduceRequest, version: int = 11) -> bool:
    """Sends the request and commits. Returns True if the fast path has served the request."""
    taken = plane.produce_api.fast(RequestContext(version), request)
    assert plane.pipeline.dirty == (taken is not None)
    plane.commit()
    return taken is not None


def test_common_requests_take_the_fast_path() -> None:
    """Without this test, the comparison in this module could compare the generic path with itself."""
    plane = plane_of()
    plain = batch_of(b"v", b"w")
    assert is_fast(plane, request_of(plain))
    assert is_fast(plane, request_of(plain), 3)
    assert is_fast(plane, request_of(plain, plain, topics=("t", "u")))
    for codec in (1, 2, 3, 4):
        assert is_fast(plane, request_of(batch_of(b"v" * 99, b"w", compression=codec, compress=compress)))
    for sequence in (0, 2, 4):
        assert is_fast(plane, request_of(batch_of(b"v", b"w", producer=(7, 0), sequence=sequence)))


def test_batches_of_a_known_transaction_take_the_fast_path() -> None:
    """The generic path verifies the first batch of a partition; the fast path appends later batches of the
    transaction.
    """
    plane = plane_of(verifier=Coordinator())
    first, second = (batch_of(b"v", producer=(7, 0), sequence=at, transactional=True) for at in (0, 1))
    assert not is_fast(plane, request_of(first, tid="yes"))
    plane.call(request_of(first, tid="yes"), 11)
    assert not is_fast(plane, request_of(second))
    assert is_fast(plane, request_of(second, tid="yes"))
    assert plane.partition("t").producers.open_transactions == {7: 0}


def test_transactions_of_two_producers_in_one_request_take_the_generic_path() -> None:
    """The fast path serves a request with one of the transactions; the generic path refuses a request with both."""
    plane = plane_of(verifier=Coordinator())
    for producer_id, index in ((7, 0), (8, 1)):
        data = PartitionProduceData(
            index=index, records=batch_of(b"v", producer=(producer_id, 0), sequence=0, transactional=True)
        )
        begun = ProduceRequest(
            transactional_id="yes", acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
        )
        assert plane.call(begun, 11).responses[0].partition_responses[0].error_code == 0
    both = [batch_of(b"v", producer=(producer_id, 0), sequence=1, transactional=True) for producer_id in (7, 8)]
    assert not is_fast(plane, request_of(*both, tid="yes"))
    codes = [part.error_code for part in plane.call(request_of(*both, tid="yes"), 11).responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_a_batch_with_wrong_offset_deltas_takes_the_generic_path() -> None:
    plane = plane_of()
    sound = batch_of(b"v")
    assert sound[64] == 0
    assert not is_fast(plane, request_of(with_header(sound, 64, ">B", 2)))


def test_authorized_topics_take_the_fast_path() -> None:
    plane = plane_of(authorizer=Strict())
    assert is_fast(plane, request_of(batch_of(b"v")))
    assert not is_fast(plane, request_of(batch_of(b"v"), topics=("t", "u")))


def test_both_paths_authorize_every_topic() -> None:
    authorizer = Strict()
    plane = plane_of(authorizer=authorizer)
    plane.call(request_of(batch_of(b"v"), topics=("t", "u")), 11)
    assert authorizer.checked == 2 * [(ResourceType.TOPIC, "t"), (ResourceType.TOPIC, "u")]


def test_the_fast_path_declines_an_unverified_transaction_before_it_reads_records() -> None:
    """Only the generic path then checks the CRC and the records, so they are checked once."""
    decompressed: list[int] = []
    plane = plane_of(verifier=Coordinator())
    compressed = batch_of(b"v" * 99, producer=(7, 0), sequence=0, transactional=True, compression=1, compress=compress)

    def counted(codec: int, records: Any, limit: int) -> bytes:
        decompressed.append(codec)
        return decompress(codec, records, limit)

    api = plane.produce_api
    fast = ProduceFastPath(
        api, names=plane.partitions.names, ids=plane.partitions.ids, pipeline=plane.pipeline, now=plane.now,
        allowed=None, forbidden="", decompress=counted,
    )  # fmt: skip
    request = request_of(compressed, tid="yes")
    assert fast.serve(RequestContext(11), request) is None
    assert decompressed == []
    plane.call(request, 11)
    again = request_of(batch_of(b"v" * 99, producer=(7, 0), sequence=1, transactional=True, compression=1,
                                compress=compress), tid="yes")  # fmt: skip
    assert fast.serve(RequestContext(11), again) is not None
    assert decompressed == [1]


@pytest.mark.parametrize("version", [9, 11])
@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_log_error_has_the_same_response_on_both_paths(code: ErrorCode, version: int) -> None:
    """Covers two errors of partition 1: its log has records of a newer leader epoch, or its log no longer exists.
    Partition 0 is served.
    """
    responses = []
    for fast in (True, False):
        plane = plane_of()
        log = plane.partition("t", 1).log
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            log.append(batch_of(b"x"), 99)
        else:
            plane.log.drop(log.key)
        plane.commit()
        records = batch_of(b"v", producer=(7, 0), sequence=0)
        handle = partial(serve, plane.produce_api) if fast else plane.produce_api.handle
        pending = handle(RequestContext(version), request_of(records, records))
        responses.append(plane.settle(pending, version))
        assert [list(plane.partition("t", index).producers.entries) for index in (0, 1)] == [[7], []]
    assert responses[0] == responses[1]
    parts = responses[0].responses[0].partition_responses
    assert [(response.error_code, response.base_offset) for response in parts] == [(0, 0), (code, -1)]
    assert [endpoint.port for endpoint in responses[0].node_endpoints] == (
        [9092] if version >= 10 and code == ErrorCode.NOT_LEADER_OR_FOLLOWER else []
    )
