"""The records of offsets: their bytes and versions, and the decoding of every version that Kafka ever wrote."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.group.offsets.records import INT64_MAX, expire_timestamp, tombstone
from kcore.group.shard import TOPIC_NAME
from kcore.protocol.records import decode_key, decode_value
from kcore.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.runtime.machine import Record
from kcore_ext.group.offset_block import OffsetBlock
from kcore_ext.group.offsets import OffsetAndMetadata
from tests.group.offsets.world import OffsetsContext

TOPIC_ID = bytes(range(16))
ZERO = bytes(16)
NOW_MS = 1_700_000_000_123


def requested_partition(partition=3, offset=42, epoch=5, metadata: str | None = "note"):
    return SimpleNamespace(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
    )


def offset_record(group, topic, topic_id, wanted, now_ms, expire_ms=-1) -> Record:
    block = OffsetBlock(group, now_ms, expire_ms, 4096, Record)
    block.add(topic, topic_id, [wanted], None, lambda **_: None, {})
    (record,) = block
    return record


def test_an_offset_is_written_with_version_4():
    record = offset_record("g", "t", TOPIC_ID, requested_partition(), NOW_MS)
    assert record.key.encode_key().hex(" ", 1) == "00 01 00 01 67 00 01 74 00 00 00 03"
    assert record.value.encode_value(record.version).hex() == (
        "0004"  # version
        "000000000000002a"  # offset
        "00000005"  # leader epoch
        "056e6f7465"  # metadata, compact
        "0000018bcfe5687b"  # commit timestamp
        "010010" + TOPIC_ID.hex()  # one tagged field: number 0, 16 bytes
    )


def test_an_unknown_topic_id_is_not_written():
    record = offset_record("g", "t", ZERO, requested_partition(metadata=None), NOW_MS)
    assert record.value.encode_value(record.version).hex() == "0004000000000000002a00000005010000018bcfe5687b00"


def test_an_expiry_time_is_written_with_version_1_which_has_neither_epoch_nor_topic_id():
    record = offset_record("g", "t", TOPIC_ID, requested_partition(), NOW_MS, NOW_MS + 1)
    assert record.value.encode_value(record.version).hex() == (
        "0001000000000000002a00046e6f74650000018bcfe5687b0000018bcfe5687c"
    )
    assert record.value.leader_epoch == -1
    assert record.value.topic_id == ZERO


def test_a_tombstone_has_the_same_key_and_no_value():
    assert tombstone("g", "t", 3).key == offset_record("g", "t", TOPIC_ID, requested_partition(), NOW_MS).key
    assert tombstone("g", "t", 3).value is None


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.integers(0, (1 << 31) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.none() | st.text(max_size=50),
    st.binary(min_size=16, max_size=16),
)
def test_encoded_records_decode_to_the_same_values(group, topic, partition, offset, epoch, metadata, topic_id):
    record = offset_record(group, topic, topic_id, requested_partition(partition, offset, epoch, metadata), NOW_MS)
    key = decode_key(TOPIC_NAME, record.key.encode_key())
    assert key == OffsetCommitKey(group=group, topic=topic, partition=partition)
    assert decode_value(key, record.value.encode_value(record.version)) == OffsetCommitValue(
        offset=offset,
        leader_epoch=epoch,
        metadata=metadata or "",
        commit_timestamp=NOW_MS,
        topic_id=topic_id,
    )


@pytest.mark.parametrize(
    ("retention_ms", "expires_ms"),
    [(-1, -1), (0, NOW_MS), (60_000, NOW_MS + 60_000), (INT64_MAX, INT64_MAX), (INT64_MAX - NOW_MS, INT64_MAX)],
)
def test_expiration_times_fit_in_a_record(retention_ms, expires_ms):
    assert expire_timestamp(retention_ms, NOW_MS) == expires_ms


# ---- contents of a log


def load(*records: tuple[str, str | None]) -> OffsetsContext:
    """Returns a shard that replayed records given in hex, as its loader does."""
    context = OffsetsContext()
    machine = context.machine
    for offset, (key, value) in enumerate(records):
        typed = machine.decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        assert typed is not None
        machine.replay(offset, -1, *typed)
    return context


KEY = "000100016700017400000003"
LEGACY_KEY = "000000016700017400000003"
COMMON = "000000000000002a"
NOTE = "00046e6f7465"
STAMP = "0000018bcfe5687b"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000" + COMMON + NOTE + STAMP, (42, -1, "note", NOW_MS, -1, ZERO)),
        ("0001" + COMMON + NOTE + STAMP + "0000018bcfe5687c", (42, -1, "note", NOW_MS, NOW_MS + 1, ZERO)),
        ("0001" + COMMON + NOTE + STAMP + "ffffffffffffffff", (42, -1, "note", NOW_MS, -1, ZERO)),
        ("0002" + COMMON + NOTE + STAMP, (42, -1, "note", NOW_MS, -1, ZERO)),
        ("0003" + COMMON + "00000007" + NOTE + STAMP, (42, 7, "note", NOW_MS, -1, ZERO)),
        ("0004" + COMMON + "00000007" + "056e6f7465" + STAMP + "00", (42, 7, "note", NOW_MS, -1, ZERO)),
        (
            "0004" + COMMON + "00000007" + "056e6f7465" + STAMP + "010010" + TOPIC_ID.hex(),
            (42, 7, "note", NOW_MS, -1, TOPIC_ID),
        ),
    ],
)
def test_every_version_of_the_value_is_decoded(value, expected):
    store = load((KEY, value)).machine.offsets
    assert store.get("g", "t", 3) == OffsetAndMetadata(0, *expected)


def test_a_key_of_version_0_is_replayed_like_any_other():
    value = "0000" + COMMON + NOTE + STAMP
    context = load((LEGACY_KEY, value), (KEY, "0003" + COMMON + "00000007" + NOTE + STAMP))
    assert context.machine.offsets.get("g", "t", 3) == OffsetAndMetadata(1, 42, 7, "note", NOW_MS, -1, ZERO)
    context = load((KEY, value), (LEGACY_KEY, value))
    assert context.machine.offsets.get("g", "t", 3) == OffsetAndMetadata(1, 42, -1, "note", NOW_MS, -1, ZERO)
    context = load((KEY, value), (LEGACY_KEY, None))
    assert context.machine.offsets.get("g", "t", 3) is None


def test_replaying_an_offset_of_an_unknown_group_creates_a_simple_group():
    for key in (KEY, LEGACY_KEY):
        group = load((key, "0000" + COMMON + NOTE + STAMP)).machine.groups["g"]
        assert (group.state_name(), group.protocol_type) == ("Empty", "")
    assert load((KEY, None)).machine.groups == {}


def test_typed_legacy_records_are_replayed_too():
    context = OffsetsContext()
    value = LegacyOffsetCommitValue(offset=1, metadata="m", commit_timestamp=2)
    context.machine.replay(9, -1, LegacyOffsetCommitKey(group="g", topic="t", partition=0), value)
    assert context.machine.offsets.get("g", "t", 0) == OffsetAndMetadata(9, 1, -1, "m", 2, -1, ZERO)
