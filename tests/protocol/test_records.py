"""Records of the internal topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.protocol import DecodeError, EncodeError
from kcore.protocol.records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    UnknownRecord,
    decode_key,
    decode_value,
    key_classes,
)
from kcore.protocol.records.base import RecordKey
from kcore.protocol.records.control import ControlRecordType, ControlRecordTypeSchema, EndTxnMarker
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from tests.golden import kwire
from tests.protocol.oracles import to_kwire
from tests.protocol.strategies import at_version, examples, struct_strategy

KEYS = [
    (topic, cls)
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
    for cls in dict.fromkeys(key_classes(topic).values())
]


@pytest.mark.parametrize(("topic", "cls"), KEYS, ids=lambda x: getattr(x, "__name__", x))
def test_kwire_reads_keys_and_values_of_a_log(topic: str, cls: type[RecordKey]) -> None:
    """kwire decodes the keys and values that kcore encodes: keys with the record type first, values with their version
    first. Covers all versions.
    """

    @examples(8, 200)
    @given(struct_strategy(cls), struct_strategy(cls.VALUE))
    def check(key: RecordKey, anything: object) -> None:
        raw = key.encode_key()
        assert decode_key(topic, raw) == key
        assert cls.decode_key(raw) == key
        for version in range(cls.VALUE.MIN_VERSION, cls.VALUE.MAX_VERSION + 1):
            value = at_version(anything, version)  # type: ignore[arg-type]
            data = value.encode_value(version)
            assert decode_value(key, data) == value
            assert decode_value(key, memoryview(bytearray(data))) == value
            assert kwire.read_event(topic, raw, data) == {
                "type": cls.__name__[:-3],
                "key": to_kwire(key, 0),
                "value": {"_version": version, **to_kwire(value, version)},
            }

    check()


def test_every_record_of_kafka_has_its_type() -> None:
    assert {t: c.__name__ for t, c in key_classes(CONSUMER_OFFSETS).items() if t not in (0, 1, 2)} == {
        t: f"{name}Key" for t, name in kwire.RECORD_KEY_BY_TYPE[CONSUMER_OFFSETS].items() if t not in (0, 1, 2)
    }
    assert key_classes(CONSUMER_OFFSETS)[0] is key_classes(CONSUMER_OFFSETS)[1] is OffsetCommitKey
    assert key_classes(CONSUMER_OFFSETS)[2] is GroupMetadataKey
    assert key_classes("a-topic-of-a-user") == {}


def test_a_tombstone_has_no_value() -> None:
    assert decode_value(OffsetCommitKey(group="g"), None) is None


@examples(50, 1000)
@given(st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_unknown_record_types_are_kept_as_bytes(tail: bytes, value: bytes | None) -> None:
    raw = b"\x27\x0f" + tail
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE, "other"):
        key = decode_key(topic, raw)
        assert key == UnknownRecord(9999, raw, None)
        assert decode_value(key, value) == UnknownRecord(9999, raw, value)
    assert decode_key(CONSUMER_OFFSETS, b"\x01") == UnknownRecord(-1, b"\x01")


def test_a_key_of_the_oldest_type_is_read_as_an_offset_commit() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert decode_key(CONSUMER_OFFSETS, b"\0\0" + key.encode_key()[2:]) == key


def test_a_newer_flexible_value_is_read_as_the_newest_known() -> None:
    """Kafka adds only tagged fields to flexible values (KIP-915)."""
    value = TransactionLogValue(producer_id=7, transaction_partitions=None)
    data = bytearray(value.encode_value(1))
    data[:2] = b"\x00\x09"
    assert decode_value(TransactionLogKey(transactional_id="t"), data) == value
    newer = bytearray(OffsetCommitValue(offset=5).encode_value(4))
    newer[:2] = b"\x7f\xff"
    assert decode_value(OffsetCommitKey(), newer) == OffsetCommitValue(offset=5)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00", b"\x00\x03\x00"])
def test_malformed_values_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_value(GroupMetadataKey(group="g"), data)


def test_a_key_of_another_type_is_refused() -> None:
    with pytest.raises(DecodeError, match="expected record type 1, found 2"):
        OffsetCommitKey.decode_key(GroupMetadataKey(group="g").encode_key())


def test_value_versions_are_checked() -> None:
    with pytest.raises(EncodeError, match="unknown version 5; valid: 0 to 4"):
        GroupMetadataValue().encode_value(5)


def test_a_version_that_lacks_a_set_field_is_refused_unless_the_field_is_ignorable() -> None:
    assert OffsetCommitValue.decode(OffsetCommitValue(offset=1, leader_epoch=4).encode(2), 2) == OffsetCommitValue(
        offset=1
    )
    with pytest.raises(EncodeError, match=r"TransactionLogValue\.next_producer_id"):
        TransactionLogValue(next_producer_id=9).encode(0)


def test_transaction_markers_have_kafkas_layout() -> None:
    """The key consists of version 0 and the marker type. The value consists of version 0 and the coordinator epoch
    (KIP-98).
    """
    assert b"\0\0" + ControlRecordTypeSchema(type=ControlRecordType.COMMIT).encode(0) == b"\x00\x00\x00\x01"
    assert EndTxnMarker(coordinator_epoch=2).encode_value(0) == b"\x00\x00\x00\x00\x00\x02"
    assert EndTxnMarker.decode_value(b"\x00\x00\x00\x00\x00\x02") == EndTxnMarker(coordinator_epoch=2)
