"""Batches of kcore and of other implementations: each implementation reads the other's batches, in every codec."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch  # type: ignore[import-untyped]
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from kcore.protocol.compression import compress, decompress
from kcore_ext.batch import (
    BatchBuilder,
    build_control_batch,
    iter_entries,
    iter_records,
    parse_control,
    parse_header,
    split_batches,
    validate,
)
from tests.golden.kwire import batch as kwire_batch
from tests.golden.kwire import read_batches

ROOM = 2**20

# kafka-python's codecs above gzip need libraries of their own
AIOKAFKA_READS = [(DefaultRecordBatch, codec) for codec in range(5)]
AIOKAFKA_BUILDS = [(DefaultRecordBatchBuilder, codec) for codec in range(5)]

Headers = list[tuple[str, bytes | None]]
Entry = tuple[int, bytes | None, bytes | None, Headers]

any_bytes = st.none() | st.binary(max_size=100)
# Timestamps in the range that all support
entries = st.lists(
    st.tuples(
        st.integers(0, 2**45),
        any_bytes,
        any_bytes,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2),
    ),
    min_size=1,
    max_size=30,
)
producers = st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))


def ours(records: list[Entry], codec: int, transactional: bool, producer: tuple[int, int, int]) -> bytes:
    builder = BatchBuilder(
        ROOM,
        base_timestamp_ms=records[0][0],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
        compression=codec,
        compress=compress,
    )
    for record in records:
        assert builder.append(*record)
    return builder.build()


@pytest.mark.parametrize(("reader", "codec"), [*AIOKAFKA_READS, (KafkaPythonBatch, 0), (KafkaPythonBatch, 1)])
@given(records=entries, transactional=st.booleans(), producer=producers)
@settings(max_examples=25, deadline=None)
def test_other_clients_read_kcores_batches(
    reader: Any, codec: int, records: list[Entry], transactional: bool, producer: tuple[int, int, int]
) -> None:
    batch = ours(records, codec, transactional, producer)
    theirs = reader(batch)
    assert theirs.validate_crc()
    assert theirs.is_transactional == transactional
    assert not theirs.is_control_batch
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == producer
    assert theirs.next_offset == len(records)
    read = [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in theirs]
    assert read == [(offset, *record) for offset, record in enumerate(records)]


@pytest.mark.parametrize(
    ("make_builder", "codec"), [*AIOKAFKA_BUILDS, (KafkaPythonBuilder, 0), (KafkaPythonBuilder, 1)]
)
@given(records=entries, transactional=st.booleans(), producer=producers)
@settings(max_examples=25, deadline=None)
def test_batches_of_other_clients_are_read(
    make_builder: Any, codec: int, records: list[Entry], transactional: bool, producer: tuple[int, int, int]
) -> None:
    builder = make_builder(2, codec, transactional, *producer, ROOM)
    for offset, (timestamp_ms, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp_ms, key, value, headers)
    batch = bytes(builder.build())
    header = validate(batch, decompress=decompress)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert (header.is_transactional, header.is_control, header.record_count) == (transactional, False, len(records))
    assert header.max_timestamp_ms == max(record[0] for record in records)
    read = [
        (r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in iter_records(batch, decompress=decompress)
    ]
    assert read == [(offset, *record) for offset, record in enumerate(records)]
    if not header.compression:
        # byte for byte, except the leader epoch, which the log sets
        mine = ours(records, 0, transactional, producer)
        assert (mine[:12], mine[16:]) == (batch[:12], batch[16:])


@given(records=entries, transactional=st.booleans(), producer=producers)
@settings(max_examples=30)
def test_the_independent_codec_reads_kcores_batches(
    records: list[Entry], transactional: bool, producer: tuple[int, int, int]
) -> None:
    batch = ours(records, 0, transactional, producer)
    marker = build_control_batch(1, 7, producer_id=3, producer_epoch=1, timestamp_ms=55, base_offset=900)
    first, second = read_batches(batch + marker + batch[:-1])
    assert first["crc_ok"]
    assert (first["producer_id"], first["producer_epoch"], first["base_sequence"]) == producer
    assert (first["transactional"], first["control"]) == (transactional, False)
    assert first["records"] == [
        {"offset": offset, "timestamp": timestamp_ms, "key": key, "value": value, "headers": headers}
        for offset, (timestamp_ms, key, value, headers) in enumerate(records)
    ]
    assert (second["crc_ok"], second["control"], second["transactional"], second["base_offset"]) == (
        True,
        True,
        True,
        900,
    )
    assert [(r["offset"], r["timestamp"], r["key"], r["value"]) for r in second["records"]] == [
        (900, 55, b"\0\0\0\1", b"\0\0\0\0\0\7")
    ]


@given(pairs=st.lists(st.tuples(any_bytes, any_bytes), min_size=1, max_size=20))
def test_batches_of_the_independent_codec_are_read(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    data = kwire_batch(pairs, producer_id=5, producer_epoch=1, base_sequence=0) * 2
    found = split_batches(data)
    assert (len(found.batches), found.end, found.error) == (2, len(data), None)
    for position, size in found.batches:
        assert validate(data, position).size_bytes == size
        assert [(key, value) for _, _, key, value in iter_entries(data, position)] == pairs


def test_other_clients_recognise_an_end_marker() -> None:
    marker = build_control_batch(0, 7, producer_id=3, producer_epoch=1, timestamp_ms=55)
    for theirs in (DefaultRecordBatch(marker), KafkaPythonBatch(marker)):
        assert theirs.validate_crc()
        assert theirs.is_control_batch
        assert theirs.is_transactional
    assert parse_header(marker).base_sequence == -1
    assert parse_control(marker).coordinator_epoch == 7
