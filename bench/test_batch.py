"""Record batches, compared with aiokafka's (compiled) and kafka-python's (pure Python) builders and readers.

A row builds or reads one batch of `records` records, including its CRC. A record has a key of 40 bytes and a value of
60 bytes.
"""

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from pytest_benchmark.fixture import BenchmarkFixture

from kcore_ext.batch import BatchBuilder, iter_entries, iter_records, parse_header, validate

KEY, VALUE = bytes(40), bytes(60)
NOW_MS = 1_790_000_000_000
ROOM = 2**20


def build(records: int) -> bytes:
    builder = BatchBuilder(ROOM, base_timestamp_ms=NOW_MS)
    append = builder.append
    for _ in range(records):
        append(NOW_MS, KEY, VALUE)
    return builder.build()


def build_with(make: Any) -> Callable[[int], bytes]:
    def build_theirs(records: int) -> bytes:
        builder = make(2, 0, False, -1, -1, -1, ROOM)
        for offset in range(records):
            builder.append(offset, NOW_MS, KEY, VALUE, [])
        return bytes(builder.build())

    return build_theirs


BUILDERS = {
    "kcore": build,
    "aiokafka": build_with(DefaultRecordBatchBuilder),
    "kafka-python": build_with(KafkaPythonBuilder),
}
READERS: dict[str, Callable[[bytes], int]] = {
    "kcore records": lambda batch: sum(1 for _ in iter_records(batch)),
    "kcore entries": lambda batch: sum(1 for _ in iter_entries(batch)),
    "aiokafka": lambda batch: sum(1 for _ in DefaultRecordBatch(batch)),
    "kafka-python": lambda batch: sum(1 for _ in KafkaPythonBatch(batch)),
}


@pytest.mark.parametrize("records", [1, 10, 1000])
@pytest.mark.parametrize("kind", BUILDERS)
def test_build(benchmark: BenchmarkFixture, kind: str, records: int) -> None:
    benchmark.group = f"batch: build {records} records"
    batch = benchmark(BUILDERS[kind], records)
    assert validate(batch).record_count == records


@pytest.mark.parametrize("records", [1, 1000])
@pytest.mark.parametrize("kind", READERS)
def test_read(benchmark: BenchmarkFixture, kind: str, records: int) -> None:
    benchmark.group = f"batch: read {records} records"
    assert benchmark(READERS[kind], build(records)) == records


@pytest.mark.parametrize("records", [1, 1000])
def test_validate(benchmark: BenchmarkFixture, records: int) -> None:
    benchmark.group = f"batch: validate {records} records"
    assert benchmark(validate, build(records)).record_count == records


def test_parse_header(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "batch: header"
    assert benchmark(parse_header, build(10)).record_count == 10
