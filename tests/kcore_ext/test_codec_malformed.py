"""Malformed bytes raise a DecodeError, and invalid values an EncodeError. The codec never reads beyond the end of the
bytes, and refuses a length before it allocates memory for it.
"""

import random
import struct
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.protocol import DecodeError, EncodeError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from kcore.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from kcore.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kcore.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kcore.protocol.messages.list_offsets import ListOffsetsRequest
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.streams_group_heartbeat import Endpoint
from kcore.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.consumer_group_current_member_assignment import TopicPartitions as OwnedPartitions
from kcore.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataValue
from kcore.protocol.schema import Array, Message, Struct, UInt16, UInt32, field
from tests.golden import kwire
from tests.protocol.strategies import all_messages, examples, struct_strategy

SAMPLES: list[tuple[Message, int]] = [
    (HeartbeatRequest(group_id="group", generation_id=3, member_id="m", group_instance_id="i"), 3),
    (HeartbeatRequest(group_id="group", generation_id=3, member_id="m", group_instance_id="i"), 4),
    (
        OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_offset=5)])],
        ),
        9,
    ),
    (
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[PartitionData(records=b"r" * 9, current_leader=LeaderIdAndEpoch(leader_id=3))],
                )
            ]
        ),
        12,
    ),
    (
        ConsumerGroupHeartbeatResponse(assignment=Assignment(topic_partitions=[TopicPartitions(partitions=[1, 2, 3])])),
        0,
    ),
    (
        ApiVersionsResponse(
            finalized_features_epoch=4, finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2)]
        ),
        4,
    ),
    (AlterClientQuotasRequest(entries=[EntryData(ops=[OpData(key="k", value=1.5)])]), 1),
]


@pytest.mark.parametrize(("message", "version"), SAMPLES, ids=lambda x: type(x).__name__)
def test_a_message_cut_anywhere_is_refused_with_the_position(message: Message, version: int) -> None:
    data = message.encode(version)
    assert type(message).decode(data, version) == message
    for size in range(len(data)):
        with pytest.raises(DecodeError) as caught:
            type(message).decode(data[:size], version)
        assert 0 <= caught.value.position <= size
        assert caught.value.reason


@examples(150, 5000)
@given(st.sampled_from(all_messages()), st.binary(max_size=300), st.randoms(use_true_random=False))
def test_garbage_is_read_or_refused_with_bounded_memory(cls: type[Message], data: bytes, chance: random.Random) -> None:
    version = chance.randint(cls.MIN_VERSION, cls.MAX_VERSION)
    position = 0
    tracemalloc.start()
    try:
        message = cls.decode(data, version)
    except DecodeError as error:
        position = error.position
    else:
        assert cls.decode(message.encode(version), version) == message
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert 0 <= position <= len(data)
    assert peak < 100_000 + 1000 * len(data)


@examples(150, 5000)
@given(st.data(), st.sampled_from(all_messages()), st.randoms(use_true_random=False))
def test_messages_with_flipped_bytes_are_read_or_refused(
    data: st.DataObject, cls: type[Message], chance: random.Random
) -> None:
    message = data.draw(struct_strategy(cls))
    version = cls.MAX_VERSION
    try:
        raw = bytearray(message.encode(version))
    except EncodeError:
        return
    for _ in range(3):
        if raw:
            raw[chance.randrange(len(raw))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    try:
        read = cls.decode(bytes(raw), version)
    except DecodeError:
        return
    assert type(read) is cls


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (OffsetCommitRequest, 2, b"\x00\x01g" + bytes(4) + b"\x00\x01m" + bytes(8) + b"\x7f\xff\xff\xff"),
        (MetadataRequest, 12, b"\xff\xff\xff\xff\x0f"),
        (ConsumerGroupHeartbeatRequest, 0, b"\x01\x01" + bytes(4) + b"\x00\x00" + bytes(4) + b"\xfe\xff\xff\xff\x0f"),
        (FetchResponse, 12, bytes(10) + b"\xff\xff\xff\xff\x07"),
        (HeartbeatRequest, 4, b"\xff\xff\x7f" + b"g" * 100),
        (HeartbeatRequest, 1, b"\x7f\xff" + b"g" * 100),
        (HeartbeatRequest, 4, b"\x01" + bytes(4) + b"\x01\x00\xff\xff\xff\xff\x0f"),
        (HeartbeatRequest, 4, b"\x01" + bytes(4) + b"\x01\x00\x01\x00\xff\xff\xff\x7f"),
    ],
)
def test_counts_and_lengths_beyond_the_end_are_refused_before_anything_is_allocated(
    cls: type[Message], version: int, data: bytes
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            cls.decode(data, version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_array_is_bounded_even_if_its_elements_need_no_bytes() -> None:
    """In some versions, the elements of an array have no fields and take no bytes. The decoder limits their number by
    the remaining bytes.

    Otherwise an element count of billions would create billions of objects.
    """

    class Nothing(Struct):
        later: UInt16 = field("1+", default=0)

    class Many(Message, versions="0-1"):
        nothings: Array[Nothing] = ()

    assert Many(nothings=[Nothing()] * 0).encode(0) == bytes(4)
    with pytest.raises(DecodeError, match="more elements than bytes are left"):
        Many.decode(b"\x7f\xff\xff\xff", 0)
    assert Many.decode(b"\x00\x00\x00\x02..", 0) == Many(nothings=[Nothing(), Nothing()])


def test_varints_may_be_longer_than_needed_up_to_five_bytes() -> None:
    body = bytes(4) + b"\x01\x00\x00"
    for length in (b"\x02", b"\x82\x00", b"\x82\x80\x00", b"\x82\x80\x80\x80\x00"):
        assert HeartbeatRequest.decode(length + b"g" + body, 4) == HeartbeatRequest(group_id="g")
    with pytest.raises(DecodeError, match="longer than five bytes"):
        HeartbeatRequest.decode(b"\x82\x80\x80\x80\x80\x00g" + body, 4)


def test_any_byte_but_zero_is_true() -> None:
    data = bytearray(EndTxnRequest(transactional_id="t").encode(3))
    for byte in (1, 2, 0x80, 0xFF):
        data[-2] = byte
        assert EndTxnRequest.decode(data, 3).committed is True
    data[-2] = 0
    assert EndTxnRequest.decode(data, 3).committed is False


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xc3\xa9\xc3", "é\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xf0\x9f\x98\x80", "\U0001f600"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),  # Java replaces an encoded surrogate with one character
        (b"\xed\xa0\x80\xed\xb0\x80x", "\ufffd\ufffdx"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\x80\x80", "\ufffd\ufffd"),
    ],
)
def test_invalid_utf8_becomes_replacement_characters(raw: bytes, text: str) -> None:
    data = struct.pack(">h", len(raw)) + raw + bytes(4) + b"\x00\x00"
    assert HeartbeatRequest.decode(data, 0).group_id == text
    assert HeartbeatRequest.decode(HeartbeatRequest(group_id=text).encode(0), 0).group_id == text


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
def test_any_negative_old_style_count_is_null_where_null_is_allowed(count: int) -> None:
    assert MetadataRequest.decode(struct.pack(">i", count), 1) == MetadataRequest(topics=None)
    with pytest.raises(DecodeError, match="null"):
        MetadataRequest.decode(struct.pack(">i", count), 0)
    with pytest.raises(DecodeError, match="null"):
        ListOffsetsRequest.decode(bytes(4) + struct.pack(">i", count), 1)


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(DecodeError, match="null"):
        HeartbeatRequest.decode(b"\xff\xff" + bytes(6), 0)
    with pytest.raises(DecodeError, match="null"):
        HeartbeatRequest.decode(b"\x00" + bytes(7), 4)
    with pytest.raises(EncodeError, match=r"^MetadataRequest\.topics: null is not allowed in version 0$"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(EncodeError, match=r"^HeartbeatRequest\.generation_id: null is not allowed"):
        HeartbeatRequest(generation_id=None).encode(0)  # type: ignore[arg-type]


def test_nullable_structs_are_read() -> None:
    """A signed byte precedes a nullable struct; a negative value means null. In a tagged field, an unsigned varint
    precedes the struct, and 0 means null.
    """
    response = ConsumerGroupHeartbeatResponse(assignment=None)
    data = response.encode(0)
    assert data[-2:] == b"\xff\x00"
    assert ConsumerGroupHeartbeatResponse.decode(data[:-2] + b"\x80\x00", 0) == response
    present = ConsumerGroupHeartbeatResponse(assignment=Assignment())
    assert present.encode(0)[-4:] == b"\x01\x01\x00\x00"
    for byte in (b"\x00", b"\x01", b"\x7f"):
        assert ConsumerGroupHeartbeatResponse.decode(data[:-2] + byte + b"\x01\x00\x00", 0) == present
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert value.encode(0)[-4:] == b"\x01\x00\x01\x00"
    assert ConsumerGroupMemberMetadataValue.decode(value.encode(0), 0) == value
    assert ConsumerGroupMemberMetadataValue().encode(0)[-1:] == b"\x00"
    assert ConsumerGroupMemberMetadataValue.decode(ConsumerGroupMemberMetadataValue().encode(0), 0) != value


# ---------------------------------------------------------------- tags
def _with_unknown_tags(name: str, version: int, value: dict[str, Any]) -> bytes:
    """Returns kwire's bytes with unknown tags of size 0, 1 and 5000 in front of every struct's own tags."""

    class Writer(kwire.Writer):
        pass

    def write(w: Any, fields: list[dict[str, Any]], v: int, flexible: bool, data: dict[str, Any]) -> None:
        plain = Writer()
        original(plain, fields, v, flexible, data)
        tagged = [f for f in fields if kwire._in(f.get("tagged"), v)]
        assert not any(data.get(f["name"], kwire.default_of(f, v)) != kwire.default_of(f, v) for f in tagged)
        w.out += plain.out[:-1] + b"\x03\x64\x00\x65\x01x\x66\x88\x27" + b"u" * 5000

    original = kwire.write_struct
    kwire.write_struct = write
    try:
        return kwire.encode(name, version, value)
    finally:
        kwire.write_struct = original


@pytest.mark.parametrize(
    ("name", "version", "fields"),
    [
        ("HeartbeatRequest", 4, {"group_id": "g"}),
        (
            "OffsetCommitRequest",
            9,
            {"topics": [{"name": "t", "partitions": [{"partition_index": 1}, {"partition_index": 2}]}]},
        ),
        ("ConsumerGroupHeartbeatResponse", 0, {"assignment": {"topic_partitions": [{"partitions": [1]}, {}]}}),
        ("FetchResponse", 12, {"responses": [{"topic": "t", "partitions": [{"records": b"r"}]}]}),
    ],
)
def test_unknown_tags_are_skipped_in_every_tag_section(name: str, version: int, fields: dict[str, Any]) -> None:
    cls = next(c for c in all_messages() if c.__name__ == name)
    expected = cls.decode(kwire.encode(name, version, fields), version)
    data = _with_unknown_tags(name, version, fields)
    assert len(data) > 5000
    assert cls.decode(data, version) == expected
    for size in range(0, len(data), 97):
        with pytest.raises(DecodeError):
            cls.decode(data[:size], version)


def test_tags_may_come_in_any_order_and_twice() -> None:
    """A tag occurs twice in a message. As in Kafka, the field has the later value."""
    plain = FetchRequest().encode(15)
    assert plain[-1] == 0
    state = b"\x01\x0d" + (1).to_bytes(4, "big") + (2).to_bytes(8, "big") + b"\x00"
    once, twice = b"\x00\x02a", b"\x00\x02b"
    once, twice = b"\x00\x02\x02a", b"\x00\x02\x02b"
    read = FetchRequest.decode(plain[:-1] + b"\x03" + state + once + twice, 15)
    assert read.cluster_id == "b"
    assert (read.replica_state.replica_id, read.replica_state.replica_epoch) == (1, 2)


def test_bytes_after_a_tagged_value_are_skipped_and_missing_ones_are_refused() -> None:
    plain = FetchRequest().encode(15)[:-1]
    assert FetchRequest.decode(plain + b"\x01\x00\x04\x02a??", 15).cluster_id == "a"
    with pytest.raises(DecodeError):
        FetchRequest.decode(plain + b"\x01\x00\x01\x02a", 15)


def test_tags_with_default_values_are_not_written_and_others_in_ascending_order() -> None:
    assert CreateTopicsResponse(topics=[CreatableTopicResult()]).encode(7)[-2:] == b"\x00\x00"
    partition = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1))
    assert FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]).encode(12) == FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData()])]
    ).encode(12)
    owned = OwnedPartitions(partitions=[1], assignment_epochs=range(200))
    data = ConsumerGroupCurrentMemberAssignmentValue(assigned_partitions=[owned]).encode(0)
    assert b"\x01\x00\xa2\x06\xc9\x01" in data, "a size of more than one byte moves the value"
    read = ConsumerGroupCurrentMemberAssignmentValue.decode(data, 0)
    assert read.assigned_partitions[0].assignment_epochs == tuple(range(200))


# ---------------------------------------------------------------- invalid values
@pytest.mark.parametrize(
    ("message", "version", "field_path"),
    [
        (HeartbeatRequest(group_id=b"g"), 0, "HeartbeatRequest.group_id"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="g" * 32768), 4, "HeartbeatRequest.group_id"),
        (HeartbeatRequest(group_id="\ud800"), 4, "HeartbeatRequest.group_id"),
        (HeartbeatRequest(generation_id=2**31), 0, "HeartbeatRequest.generation_id"),
        (HeartbeatRequest(generation_id=2**70), 0, "HeartbeatRequest.generation_id"),
        (HeartbeatRequest(generation_id=1.0), 0, "HeartbeatRequest.generation_id"),  # type: ignore[arg-type]
        (EndTxnRequest(committed=1), 0, "EndTxnRequest.committed"),  # type: ignore[arg-type]
        (EndTxnRequest(producer_epoch=-32769), 0, "EndTxnRequest.producer_epoch"),
        (FindCoordinatorRequest(key_type=128), 1, "FindCoordinatorRequest.key_type"),
        (FindCoordinatorRequest(coordinator_keys="group"), 4, "FindCoordinatorRequest.coordinator_keys"),
        (FindCoordinatorRequest(coordinator_keys=[1]), 4, "FindCoordinatorRequest.coordinator_keys"),  # type: ignore[list-item]
        (FindCoordinatorRequest(coordinator_keys=5), 4, "FindCoordinatorRequest.coordinator_keys"),  # type: ignore[arg-type]
        (
            ConsumerGroupHeartbeatRequest(topic_partitions=[TopicPartitions(topic_id=b"x")]),
            0,
            "TopicPartitions.topic_id",
        ),
        (
            ConsumerGroupHeartbeatRequest(topic_partitions=[Assignment()]),
            0,
            "ConsumerGroupHeartbeatRequest.topic_partitions",
        ),  # type: ignore[list-item]
        (ConsumerGroupHeartbeatResponse(assignment=TopicPartitions()), 0, "ConsumerGroupHeartbeatResponse.assignment"),  # type: ignore[arg-type]
        (JoinGroupResponse(members=[JoinGroupResponseMember(metadata="x")]), 5, "JoinGroupResponseMember.metadata"),  # type: ignore[arg-type]
        (AlterClientQuotasRequest(entries=[EntryData(ops=[OpData(value="x")])]), 0, "OpData.value"),  # type: ignore[arg-type]
    ],
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_the_error_for_an_invalid_value_names_its_field(message: Message, version: int, field_path: str) -> None:
    with pytest.raises(EncodeError) as caught:
        message.encode(version)
    assert caught.value.field == field_path
    assert caught.value.reason
    assert HeartbeatRequest(group_id="g").encode(0) == b"\x00\x01g\x00\x00\x00\x00\x00\x00", (
        "the next message is written"
    )


def test_fields_that_a_version_lacks_must_have_their_default_unless_ignorable() -> None:
    with pytest.raises(
        EncodeError, match=r"^HeartbeatRequest\.group_instance_id: version 2 does not have the field, found 'i'"
    ):
        HeartbeatRequest(group_instance_id="i").encode(2)
    with pytest.raises(EncodeError, match=r"^FindCoordinatorRequest\.coordinator_keys: version 3 does not have"):
        FindCoordinatorRequest(coordinator_keys=["a"]).encode(3)
    assert FindCoordinatorRequest(key="a", coordinator_keys=[]).encode(0) == b"\x00\x01a"
    commit = OffsetCommitRequest(retention_time_ms=5, group_id="g")
    assert OffsetCommitRequest.decode(commit.encode(9), 9) == OffsetCommitRequest(group_id="g")
    request = FetchRequest()
    request.replica_state.replica_id = 3
    with pytest.raises(EncodeError, match=r"^FetchRequest\.replica_state"):
        request.encode(4)


def test_versions_are_checked() -> None:
    with pytest.raises(EncodeError, match="unknown version 5; valid: 0 to 4"):
        HeartbeatRequest().encode(5)
    with pytest.raises(DecodeError, match="unknown version -1; valid: 0 to 4"):
        HeartbeatRequest.decode(b"", -1)
    with pytest.raises(EncodeError, match="unknown version"):
        Endpoint().encode(0)  # type: ignore[attr-defined]


def test_unsigned_numbers_have_their_own_bounds() -> None:
    class Unsigned(Message, versions="0"):
        short: UInt16 = 0
        long: UInt32 = 0

    assert Unsigned.decode(b"\xff" * 6, 0) == Unsigned(short=65535, long=2**32 - 1)
    assert Unsigned(short=65535, long=2**32 - 1).encode(0) == b"\xff" * 6
    for bad in (Unsigned(short=-1), Unsigned(short=65536), Unsigned(long=-1), Unsigned(long=2**32)):
        with pytest.raises(EncodeError, match="expected a uint"):
            bad.encode(0)


def test_enums_subclasses_and_any_sequence_or_buffer_are_accepted() -> None:
    class Name(str):
        __slots__ = ()

    assert HeartbeatRequest(generation_id=ApiKey.FETCH, group_id=Name("g")).encode(0) == HeartbeatRequest(
        generation_id=1, group_id="g"
    ).encode(0)
    keys = FindCoordinatorRequest(coordinator_keys=["a", "b"]).encode(4)
    assert FindCoordinatorRequest(coordinator_keys={"a": 1, "b": 2}.keys()).encode(4) == keys  # type: ignore[arg-type]
    for metadata in (bytearray(b"xyz"), memoryview(b"xyz"), memoryview(b"x-y-z-")[::2].tobytes()):
        member = JoinGroupResponseMember(metadata=metadata)  # type: ignore[arg-type]
        JoinGroupResponse(members=[member], protocol_name="p").encode(5)
    with pytest.raises(EncodeError, match=r"^JoinGroupResponseMember\.metadata"):
        JoinGroupResponse(members=[JoinGroupResponseMember(metadata=memoryview(b"x-y-")[::2])]).encode(5)  # type: ignore[arg-type]


# ---------------------------------------------------------------- cached strings
@examples(200, 5000)
@given(st.integers(2, 90), st.binary(min_size=1, max_size=4), st.integers(0, 89))
def test_strings_with_equal_cache_keys_are_distinguished(size: int, mark: bytes, at: int) -> None:
    """The decoder caches strings by length, first, middle and last bytes. Two strings that differ only elsewhere must
    not be mixed up, nor strings with non-ASCII bytes.
    """
    base = bytearray(b"n" * size)
    other = bytearray(base)
    other[at % size : at % size + len(mark)] = mark
    for raw in (bytes(base), bytes(other[:size]), bytes(base), bytes(other[:size])):
        data = struct.pack(">h", len(raw)) + raw + bytes(6)
        found = HeartbeatRequest.decode(data, 0).group_id
        assert found.isascii() == raw.isascii()
        if raw.isascii():
            assert found == raw.decode()
        else:
            assert len(found) <= len(raw)


def test_a_repeated_name_is_the_same_object() -> None:
    data = HeartbeatRequest(group_id="a-group-of-consumers", member_id="m" * 81).encode(4)
    first, second = HeartbeatRequest.decode(data, 4), HeartbeatRequest.decode(data, 4)
    assert first.group_id is second.group_id
    assert first.member_id is not second.member_id, "long strings are not kept"


@examples(100, 2000)
@given(st.lists(st.binary(min_size=16, max_size=16), max_size=8), st.integers(0, 255))
def test_uuids_are_distinguished_and_repeated_ones_are_the_same_object(ids: list[bytes], step: int) -> None:
    ids += [bytes(16), bytes([step]) * 16, bytes([step] * 8 + [0] * 8), bytes([0] * 8 + [step] * 8)]
    request = ConsumerGroupHeartbeatRequest(topic_partitions=[TopicPartitions(topic_id=x) for x in ids])
    data = request.encode(0)
    read = ConsumerGroupHeartbeatRequest.decode(data, 0).topic_partitions
    assert read is not None
    assert [x.topic_id for x in read] == ids
    one = ConsumerGroupHeartbeatRequest(topic_partitions=[TopicPartitions(topic_id=ids[0])]).encode(0)
    first, second = (ConsumerGroupHeartbeatRequest.decode(one, 0).topic_partitions for _ in range(2))
    assert first is not None
    assert second is not None
    assert first[0].topic_id is second[0].topic_id


def test_an_error_names_its_field_with_a_cold_type_cache() -> None:
    """A string cannot be encoded, and the error names its class and field even if CPython's type cache is empty.

    At this point the exception of the failed conversion is set. Looking up the name of the class must ignore it.
    """
    for _ in range(20):
        sys._clear_type_cache()
        with pytest.raises(EncodeError, match=r"HeartbeatRequest\.group_id"):
            HeartbeatRequest(group_id="\ud800").encode(4)
