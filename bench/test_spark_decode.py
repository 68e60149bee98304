"""Decoding of exported records to typed columns, in rows per second on one core, for every record type; without Spark.

Three readers process the same rows: the compiled reader (`extension`), its pure Python counterpart (`pure`), and a
simple one with the engine's codec (`objects`). The simple one makes an object per record, dicts of the objects, and
Arrow columns of the dicts. CPU time, the best of several runs:

    pytest bench/test_spark_decode.py --benchmark-timer=time.process_time --benchmark-columns=min
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import pyarrow as pa

from kcore.protocol.records import decode_key, decode_value
from kcore.protocol.schema import ARRAY, STRUCT, WIRE_KINDS, Struct
from kcore.spark.decode.columns import Decoder, decode_batch, record_ddl, record_types
from kcore.spark.decode.compiled import CompiledDecoder
from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.decode.pure import PureDecoder
from kcore.spark.events.arrow import to_batch, to_batches
from kcore.spark.events.event import EventRow
from kcore.spark.events.segments import SegmentPartition, find_partitions, read_batches, read_rows
from kcore_ext.batch import BatchBuilder

ROWS = 5_000
ITEMS = 3
"""Number of elements in each array of a record."""

_SAMPLES = {
    "bool": True,
    "float64": 0.5,
    "uuid": bytes(range(16)),
    "string": "a-name-of-twenty-one-",
    "bytes": bytes(24),
    "records": bytes(24),
}
_NAMES = {number: name for name, number in WIRE_KINDS.items()}


def sample(cls: type[Struct], number: int) -> Any:
    """Makes an object of a class with a value in every field, different for each `number`."""
    fields: dict[str, Any] = {}
    for spec in cls.FIELDS:
        kind = spec.item if spec.kind == ARRAY else spec.kind
        value = sample(spec.struct, number) if kind == STRUCT else _SAMPLES.get(_NAMES[kind], number % 100)
        value = f"{value}{number}" if isinstance(value, str) else value
        fields[spec.name] = (value,) * ITEMS if spec.kind == ARRAY else value
    return cls(**fields)


def batch_of(name: str) -> Any:
    """Makes records of one type, in the newest version of their class."""
    cls = record_types()[name]
    version = cls.VALUE.MAX_VERSION
    gone = {spec.name for spec in cls.VALUE.FIELDS if not spec.versions[0] <= version <= spec.versions[1]}
    rows = []
    for number in range(ROWS):
        value = sample(cls.VALUE, number)
        for spec in cls.VALUE.FIELDS:
            if spec.name in gone:
                setattr(value, spec.name, spec.default)
        key = sample(cls, number).encode_key()
        rows.append(EventRow(key, value.encode_value(version), cls.TOPIC, 0, number, 1_700_000_000_000))
    return to_batch(rows)


class Objects:
    """The baseline: it makes an object per record, dicts of the objects, and Arrow columns of the dicts."""

    def __init__(self, names: tuple[str, ...]) -> None:
        (name,) = names
        self._kind = arrow_struct(record_ddl(name))

    def decode(self, batch: Any) -> Any:
        rows_ = []
        for topic, key, value in zip(*(batch.column(n).to_pylist() for n in ("topic", "key", "value")), strict=True):
            typed = decode_key(topic, key)
            rows_.append({"key": plain(typed), "value": plain(decode_value(typed, value))})
        heads = [pa.nulls(batch.num_rows, pa.string())] * 5
        return heads, [pa.array(rows_, self._kind)]


def plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {spec.name: plain(getattr(value, spec.name)) for spec in type(value).FIELDS}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("reader", [CompiledDecoder, PureDecoder, Objects], ids=["extension", "pure", "objects"])
@pytest.mark.parametrize("name", record_types())
def test_decode(benchmark: Any, name: str, reader: Any) -> None:
    """Measures decoding one record type to typed columns."""
    benchmark.group = name
    batch = batch_of(name)
    using: Decoder = reader((name,))
    decoded = benchmark(lambda: decode_batch(batch, (name,), using))
    assert decoded.column(name).null_count == 0
    benchmark.extra_info["rows_per_second"] = round(ROWS / benchmark.stats.stats.min)


def test_decode_into_columns_of_all_types(benchmark: Any) -> None:
    """Measures decoding only offset records into a table that has the columns of all record types."""
    batch = batch_of("OffsetCommit")
    names = tuple(record_types())
    using = CompiledDecoder(names)
    benchmark(lambda: decode_batch(batch, names, using))
    benchmark.extra_info["rows_per_second"] = round(ROWS / benchmark.stats.stats.min)


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> SegmentPartition:
    """Returns a segment file of OffsetCommit records, in batches of four, as a coordinator writes them."""
    folder = tmp_path_factory.mktemp("logs") / "__consumer_offsets-0"
    folder.mkdir()
    rows = batch_of("OffsetCommit").select(["key", "value"]).to_pylist()
    with open(folder / f"{0:020d}.log", "wb") as file:
        for first in range(0, ROWS, 4):
            builder = BatchBuilder(1 << 20, base_timestamp_ms=1_700_000_000_000)
            for row in rows[first : first + 4]:
                builder.append(1_700_000_000_000, row["key"], row["value"])
            file.write(builder.build(first))
    (part,) = find_partitions(folder)
    return part


@pytest.mark.parametrize("reader", [read_batches, lambda part: to_batches(read_rows(part))], ids=["extension", "rows"])
def test_read_segments(benchmark: Any, segments: SegmentPartition, reader: Any) -> None:
    """Measures reading segment files into Arrow batches, including the checksums.

    The reader is either the compiled extension or the row reader, which makes a tuple for each record.
    """
    benchmark.group = "segments"
    found = benchmark(lambda: sum(batch.num_rows for batch in reader(segments)))
    assert found == ROWS
    benchmark.extra_info["rows_per_second"] = round(ROWS / benchmark.stats.stats.min)
