"""Compares kcore_ext.group.offsets with its reference implementation and with the codec."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.group.shard import TOPIC_NAME
from kcore.protocol.messages.offset_fetch import OffsetFetchResponsePartition, OffsetFetchResponsePartitions
from kcore.protocol.records import decode_key, decode_value
from kcore.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore_ext.group import offsets as compiled
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata, OffsetDecoder
from tests.reference import offsets as reference

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
uuid = st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
names = st.text(max_size=12)
texts = st.text(max_size=200)
offset_values = st.builds(
    OffsetCommitValue,
    offset=int64,
    leader_epoch=int32,
    metadata=texts,
    commit_timestamp=int64,
    expire_timestamp=int64,
    topic_id=uuid,
)


def fetched(**fields: Any) -> tuple[Any, ...]:
    return tuple(fields.values())


@given(
    st.lists(st.integers(0, 5)),
    st.dictionaries(
        st.integers(0, 5), st.tuples(int64, int32, texts, st.sampled_from([bytes(16), b"1" * 16, b"2" * 16]))
    ),
    st.sets(st.integers(0, 5)),
    st.sampled_from([None, b"1" * 16, bytes(16)]),
)
def test_fetch_responses_equal_the_reference(indexes, found, unstable, topic_id):
    offsets = {
        partition: OffsetAndMetadata(0, offset, epoch, metadata, 0, -1, stored_id)
        for partition, (offset, epoch, metadata, stored_id) in found.items()
    }
    expected = reference.fetch_responses(indexes, offsets, unstable, topic_id)
    assert compiled.fetch_responses(fetched, indexes, offsets, unstable, topic_id) == expected
    names = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")
    for kind in (OffsetFetchResponsePartition, OffsetFetchResponsePartitions):  # declared classes are filled in place
        responses = compiled.fetch_responses(kind, indexes, MappingProxyType(offsets), unstable, topic_id)
        assert responses == [kind(**dict(zip(names, values, strict=True))) for values in expected]
        assert responses == compiled.fetch_responses(kind, indexes, offsets, unstable, topic_id)


# ---- decoding


def read(key: bytes, value: bytes | None) -> Any:
    """Decodes a record with the codec, in the compiled types."""
    typed = decode_key(TOPIC_NAME, key)
    commit_key = CommitKey(typed.group, typed.topic, typed.partition)
    if value is None:
        return commit_key, None
    found = decode_value(typed, value)
    return commit_key, OffsetAndMetadata(
        -1,
        found.offset,
        getattr(found, "leader_epoch", -1),
        found.metadata,
        found.commit_timestamp,
        getattr(found, "expire_timestamp", -1),
        getattr(found, "topic_id", bytes(16)),
    )


@given(names, names, int32, offset_values, st.integers(0, 4))
def test_the_decoder_equals_the_codec_for_every_version(group, topic, partition, value, version):
    key = OffsetCommitKey(group=group, topic=topic, partition=partition).encode_key()
    data = value.encode_value(version)
    assert OffsetDecoder().decode(key, data) == read(key, data)
    assert OffsetDecoder().decode(key, None) == (CommitKey(group, topic, partition), None)
    legacy = LegacyOffsetCommitKey(group=group, topic=topic, partition=partition).encode_key()
    if version == 0:
        assert OffsetDecoder().decode(legacy, data) == read(legacy, data)
    assert OffsetDecoder().decode(legacy, None) == read(legacy, None)


@given(st.lists(st.tuples(st.sampled_from(["a", "ab", "b", "é"]), st.sampled_from(["c", "bc", "c"]), int32)))
def test_a_decoder_with_cached_names_decodes_any_sequence(keys):
    decoder = OffsetDecoder()
    for group, topic, partition in keys:
        key = OffsetCommitKey(group=group, topic=topic, partition=partition).encode_key()
        assert decoder.decode(key, None) == (CommitKey(group, topic, partition), None)


@given(names, names, int32, offset_values, st.integers(0, 4), st.data())
def test_truncated_or_longer_bytes_are_left_to_the_codec(group, topic, partition, value, version, data):
    key = OffsetCommitKey(group=group, topic=topic, partition=partition).encode_key()
    body = value.encode_value(version)
    cut = data.draw(st.integers(0, len(body) - 1))
    assert OffsetDecoder().decode(key, body[:cut]) is None
    assert OffsetDecoder().decode(key, body + b"\0") is None
    assert OffsetDecoder().decode(key + b"\0", body) is None
    assert OffsetDecoder().decode(key[: data.draw(st.integers(0, len(key) - 1))], body) is None


def test_bytes_that_are_not_utf8_are_left_to_the_codec():
    """The codec replaces invalid bytes, as Java does."""
    key = OffsetCommitKey(group="g?", topic="t?", partition=0).encode_key()
    data = OffsetCommitValue(offset=7, metadata="m?").encode_value(3)
    for invalid in (key.replace(b"g?", b"g\xff"), key.replace(b"t?", b"t\xff")):
        assert OffsetDecoder().decode(invalid, data) is None
        assert OffsetDecoder().decode(invalid, None) is None
    assert OffsetDecoder().decode(key, data.replace(b"m?", b"m\xff")) is None


@given(names, names, int32, st.binary(max_size=60))
def test_the_decoder_equals_the_codec_for_any_bytes(group, topic, partition, data):
    key = OffsetCommitKey(group=group, topic=topic, partition=partition).encode_key()
    found = OffsetDecoder().decode(key, data)
    if found is not None:
        assert found == read(key, data)


@pytest.mark.parametrize("key", ["0002000167", "0003000167", "00", "", "ffff00016700017400000003"])
def test_other_records_are_left_to_the_codec(key):
    assert OffsetDecoder().decode(bytes.fromhex(key), b"") is None


def test_a_newer_version_is_left_to_the_codec():
    key = OffsetCommitKey(group="g", topic="t", partition=0).encode_key()
    assert OffsetDecoder().decode(key, b"\0\5" + bytes(30)) is None


def test_tagged_fields_that_kafka_does_not_write_are_left_to_the_codec():
    key = OffsetCommitKey(group="g", topic="t", partition=0).encode_key()
    plain_body = OffsetCommitValue(offset=1).encode_value(4)
    strange = plain_body[:-1] + bytes([1, 5, 16]) + bytes(16)  # one field, number 5
    assert OffsetDecoder().decode(key, strange) is None
    assert decode_value(decode_key(TOPIC_NAME, key), strange) == OffsetCommitValue(offset=1)


# ---- encoding


def test_a_record_offset_is_set_once():
    entry = OffsetAndMetadata(-1, 1, -1, "", 0, -1, bytes(16))
    assert entry.place(5) is entry
    assert entry.record_offset == 5
    with pytest.raises(ValueError, match="committed offset 1: it has a record at 5 already, not at 6"):
        entry.place(6)


def test_values_too_large_for_a_record_are_refused():
    with pytest.raises(ValueError, match="32768 bytes"):
        CommitKey("g" * 32_768, "t", 0).encode_key()
    with pytest.raises(
        ValueError, match="the group id has 1 bytes, and the topic's name 40000; the key of a record has at most 32767"
    ):
        CommitKey("g", "é" * 20_000, 0).encode_key()
    entry = OffsetAndMetadata(-1, 1, -1, "m" * 32_768, 0, 5, bytes(16))
    with pytest.raises(
        ValueError, match="offset 1: the metadata has 32768 bytes; a record of version 1 has at most 32767"
    ):
        entry.encode_value(1)
    for version in (0, 2, 3, 5):
        with pytest.raises(ValueError, match=f"version {version} of the record; valid: versions 1 and 4"):
            entry.encode_value(version)


def test_keys_compare_by_value():
    assert CommitKey("g", "t", 1) == CommitKey("g", "t", 1) != CommitKey("g", "t", 2)
    assert CommitKey("g", "t", 1) != CommitKey("h", "t", 1)
    assert CommitKey("g", "t", 1) != ("g", "t", 1)
    assert len({CommitKey("g", "t", 1), CommitKey("g", "t", 1)}) == 1
    assert repr(CommitKey("g", "t", 1)) == "CommitKey('g', 't', 1)"
