"""Fuzzing targets of the data pipeline, which compare compiled code for Arrow's buffers with its pure Python
counterparts.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, key_classes
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from tools.fuzzing.target import BugError, Target
from tools.fuzzing.values import message

TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
HEAD = struct.Struct(">BBHH")  # flags, a second byte, the sizes of key and value
NO_KEY, NO_VALUE, CONTROL, BATCH_ONLY, PRODUCER, TRANSACTIONAL = (1 << bit for bit in range(6))
MAX_RECORDS = 200


def record(topic: str, rng: random.Random) -> tuple[bytes, bytes]:
    """Generates key and value of any record type of a topic, in any version."""
    cls = rng.choice(list(key_classes(topic).values()))
    version = rng.randint(cls.VALUE.MIN_VERSION, cls.VALUE.MAX_VERSION)
    return message(cls, 0, rng).encode_key(), message(cls.VALUE, version, rng).encode_value(version)


def packed(flags: int, second: int, key: bytes, value: bytes) -> bytes:
    """Encodes one record of a fuzzing input."""
    return HEAD.pack(flags, second, len(key), len(value)) + key + value


def unpacked(data: bytes) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Yields the records of a fuzzing input, which may be damaged."""
    at = 0
    for _ in range(MAX_RECORDS):
        if at + HEAD.size > len(data):
            return
        flags, second, key_size, value_size = HEAD.unpack_from(data, at)
        middle = at + HEAD.size + key_size
        key, value = data[at + HEAD.size : middle], data[middle : middle + value_size]
        at = middle + value_size
        yield flags, second, None if flags & NO_KEY else key, None if flags & NO_VALUE else value


class Columns(Target):
    """Target for decoding records to typed columns.

    Compares the compiled decoder with the pure Python decoder, which Spark executors without the extension use.
    """

    name = "columns"

    def __init__(self) -> None:
        import pyarrow as pa  # noqa: PLC0415

        from kcore.spark.decode.columns import decode_batch, record_types  # noqa: PLC0415
        from kcore.spark.decode.compiled import CompiledDecoder  # noqa: PLC0415
        from kcore.spark.decode.pure import PureDecoder  # noqa: PLC0415

        self.pa, self.decode = pa, decode_batch
        self.names = tuple(record_types())
        self.decoders = CompiledDecoder(self.names), PureDecoder(self.names)
        self.run(packed(0, 0, b"\0\0", b""))

    def make(self, rng: random.Random) -> bytes:
        """Generates records of one topic."""
        records = []
        for _ in range(rng.randint(1, 6)):
            topic = rng.randrange(len(TOPICS))
            flags = rng.choice((0, 0, 0, NO_VALUE, NO_KEY, CONTROL, BATCH_ONLY))
            records.append(packed(flags, topic, *record(TOPICS[topic], rng)))
        return b"".join(records)

    def run(self, data: bytes) -> None:
        """Compares both decoders on one input."""
        pa, rows = self.pa, list(unpacked(data))
        columns = {
            "key": pa.array([key for _, _, key, _ in rows], pa.binary()),
            "value": pa.array([value for _, _, _, value in rows], pa.binary()),
            "topic": pa.array([(*TOPICS, "orders", None)[second % 5] for _, second, _, _ in rows], pa.string()),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(range(len(rows)), pa.int64()),
            "timestamp": pa.array([0] * len(rows), pa.timestamp("us", "UTC")),
            "control": pa.array([bool(flags & CONTROL) for flags, *_ in rows], pa.bool_()),
            "batch_only": pa.array([bool(flags & BATCH_ONLY) for flags, *_ in rows], pa.bool_()),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        compiled, pure = (self.decode(batch, self.names, decoder) for decoder in self.decoders)
        for column in compiled.columns:
            column.validate(full=True)
        for decoded, expected in zip(compiled.to_pylist(), pure.to_pylist(), strict=True):
            if repr(decoded) != repr(expected):  # NaN does not equal itself
                raise BugError(f"{decoded!r} instead of {expected!r}")


class Replays(Target):
    """Target for coordinator logs: compares replay by columns with replay by rows."""

    name = "replays"

    def __init__(self) -> None:
        from kcore.spark.events.arrow import to_batch  # noqa: PLC0415
        from kcore.spark.events.event import EventRow  # noqa: PLC0415
        from kcore.spark.state.batch_replay import rebuild_batches  # noqa: PLC0415
        from kcore.spark.state.rebuild import AsOf, rebuild  # noqa: PLC0415
        from kcore.spark.state.table_batches import state_tables  # noqa: PLC0415
        from kcore.spark.state.tables import table_rows  # noqa: PLC0415

        self.row, self.to_batch, self.as_of = EventRow, to_batch, AsOf
        self.in_columns, self.in_rows, self.tables, self.table_rows = rebuild_batches, rebuild, state_tables, table_rows
        self.run(b"\0\xff" + packed(0, 1, b"\0\0", b""))

    def make(self, rng: random.Random) -> bytes:
        """Generates a coordinator's log."""
        topic = rng.choice((0, 0, 0, 1, 2))
        flags = (0, 0, 0, 0, NO_VALUE, NO_KEY, PRODUCER, PRODUCER | TRANSACTIONAL, PRODUCER | CONTROL, BATCH_ONLY)
        records = [
            packed(rng.choice(flags), rng.choice((1, 1, 1, 0, 2)), *self._record(topic, rng))
            for _ in range(rng.randint(1, 12))
        ]
        return bytes((topic, rng.choice((255, 5)))) + b"".join(records)

    @staticmethod
    def _record(topic: int, rng: random.Random) -> tuple[bytes, bytes]:
        """Generates a record, usually a committed offset, because committed offsets are replayed by columns."""
        if topic or rng.random() < 0.3:
            return record(TOPICS[topic], rng)
        version = rng.randint(0, 4)
        return message(OffsetCommitKey, 0, rng).encode_key(), message(OffsetCommitValue, version, rng).encode_value(
            version
        )

    def run(self, data: bytes) -> None:
        """Compares both replays on one input."""
        if len(data) < 2:
            return
        topic, cut = TOPICS[data[0] % len(TOPICS)], None if data[1] == 255 else data[1]
        rows, offset = [], 0
        for flags, step, key, value in unpacked(data[2:]):
            offset += step % 4
            producer_id = flags >> 6 if flags & PRODUCER else -1
            batch_only = bool(flags & BATCH_ONLY)
            rows.append(
                self.row(
                    None if batch_only else key,
                    None if batch_only else value,
                    topic,
                    0,
                    offset,
                    1_000 + step,
                    producer_id=producer_id,
                    producer_epoch=step >> 4,
                    transactional=bool(flags & TRANSACTIONAL),
                    control=bool(flags & CONTROL),
                    batch_only=batch_only,
                )
            )
        if not rows:
            return
        as_of = self.as_of(cut)
        replayed, expected = (
            self.in_columns(topic, 0, [self.to_batch(rows)], as_of),
            self.in_rows(topic, 0, rows, as_of),
        )
        if repr(self._tables(replayed)) != repr(self._tables(expected)):
            raise BugError(f"{self._tables(replayed)} instead of {self._tables(expected)}")
        for _, batch in self.tables(replayed.state, replayed.cut):
            batch.validate(full=True)

    def _tables(self, result: Any) -> list[Any]:
        return [result.state.faults, *self.table_rows(result.state, result.cut)]
