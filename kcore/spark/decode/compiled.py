"""Decodes records to typed columns with `kcore_ext.spark.record_columns`, from Arrow buffers to Arrow buffers."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from kcore.protocol.records import key_classes
from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.decode.pure_record import decode_record
from kcore.spark.decode.record_types import HEAD_DDL, STATUSES, TOPICS, name_of, record_ddl
from kcore.spark.events.arrow import filled_array
from kcore_ext.spark.column_store import Input
from kcore_ext.spark.record_columns import STATUSES as COMPILED_STATUSES
from kcore_ext.spark.record_columns import RecordColumns

assert COMPILED_STATUSES == STATUSES, "the extension was built from another version"

_STATUS_TYPE, _DETAIL_TYPE, _RECORD_TYPE, _NAME_TYPE, _VERSION_TYPE = (field.type for field in arrow_struct(HEAD_DDL))


class CompiledDecoder:
    """The `Decoder` that creates no object per row (see `kcore.spark.decode.columns`)."""

    def __init__(self, names: tuple[str, ...]) -> None:
        topics = {
            topic: [(number, name_of(cls), cls, cls.VALUE) for number, cls in key_classes(topic).items()]
            for topic in TOPICS
        }
        self._columns = RecordColumns(topics, frozenset(names))
        self._kinds = {name: arrow_struct(record_ddl(name)) for name in names}
        self._statuses = pa.array(STATUSES, _STATUS_TYPE)
        self._names = pa.array(self._columns.names, _NAME_TYPE)

    def decode(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], list[pa.Array]]:
        """Decodes one batch, as `Decoder.decode` documents."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        texts = (_texts(columns[name]) for name in ("topic", "key", "value"))
        flags = (_flags(columns.get(name)) for name in ("control", "batch_only"))
        undecodable = self._columns.read(batch.num_rows, *texts, *flags)
        status, name, record_type, version = self._columns.take_heads()
        heads = [
            self._statuses.take(filled_array(pa.int8(), status)),
            _details(columns, undecodable, batch.num_rows),
            filled_array(_RECORD_TYPE, record_type),
            self._names.take(filled_array(pa.int32(), name)),
            filled_array(_VERSION_TYPE, version),
        ]
        return heads, [self._record(name, kind, batch.num_rows) for name, kind in self._kinds.items()]

    def _record(self, name: str, kind: pa.DataType, size: int) -> pa.Array:
        finished = self._columns.take(name)
        return _nulls(size, kind) if finished is None else filled_array(kind, finished)


@lru_cache(maxsize=64)
def _nulls(size: int, kind: pa.DataType) -> pa.Array:
    """Returns a column of nulls. Cached, because most batches of a task have the same size."""
    return pa.nulls(size, kind)


def _texts(column: pa.Array) -> Input:
    validity, offsets, data = column.buffers()
    return Input(validity, offsets, data, column.offset)


def _flags(column: pa.Array | None) -> Input | None:
    if column is None:
        return None
    validity, data = column.buffers()
    return Input(validity, None, data, column.offset)


def _details(columns: dict[str, pa.Array], undecodable: list[int], size: int) -> pa.Array:
    """Returns the error messages of undecodable rows. To get the messages, decodes these rows again in pure Python."""
    if not undecodable:
        return _nulls(size, _DETAIL_TYPE)
    details: list[str | None] = [None] * size
    for row in undecodable:
        head, _ = decode_record(*(columns[name][row].as_py() for name in ("topic", "key", "value")))
        details[row] = head[1]
    return pa.array(details, _DETAIL_TYPE)
