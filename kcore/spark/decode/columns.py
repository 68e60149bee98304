"""Decodes records to typed columns: a struct for each record type, over Arrow batches.

Decoding drops no row and never fails: an undecodable record becomes a row with the reason (`status`, `detail`) next to
its bytes. If the compiled extension is installed, it decodes the records (`decode.compiled`); otherwise pure Python
does (`decode.pure`). Both return the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pyarrow as pa

from kcore.errors import KcoreError
from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.decode.pure import PureDecoder
from kcore.spark.decode.pure_record import Head, decode_record
from kcore.spark.decode.record_types import (
    HEAD_DDL,
    KEPT,
    STATUSES,
    TOPICS,
    decoded_ddl,
    fields_ddl,
    name_of,
    record_ddl,
    record_types,
)

try:
    from kcore.spark.decode.compiled import CompiledDecoder

    HAS_EXTENSION = True
except ImportError:  # an executor without the extension
    HAS_EXTENSION = False

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "HAS_EXTENSION",
    "HEAD_DDL",
    "KEPT",
    "STATUSES",
    "TOPICS",
    "Decoder",
    "Head",
    "decode",
    "decode_batch",
    "decode_record",
    "decoded_ddl",
    "decoder",
    "fields_ddl",
    "name_of",
    "record_ddl",
    "record_types",
]


class Columns(NamedTuple):
    """The result of decoding the columns topic, key and value.

    Attributes:
        heads: the columns of `HEAD_DDL`.
        records: a struct column for each requested record type.
    """

    heads: list[pa.Array]
    records: list[pa.Array]


class Decoder(Protocol):
    """The interface of decoders of batches, for a fixed set of record types. Not thread-safe."""

    def decode(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], list[pa.Array]]:
        """Returns the columns of `HEAD_DDL`, and a struct column per record type, with as many rows as the batch.

        Args:
            batch: has the columns topic, key and value, and optionally control and batch_only, as Arrow's string,
                binary and bool.
        """


def decoder(names: Iterable[str]) -> Decoder:
    """Returns a decoder for these record types, compiled if the extension is installed.

    Raises:
        KcoreError: a name is not a record type.
    """
    names = tuple(names)
    unknown = sorted(set(names) - set(record_types()))
    if unknown:
        raise KcoreError(f"{', '.join(unknown)}: unknown record type; known types: {', '.join(record_types())}")
    make: Callable[[tuple[str, ...]], Decoder] = CompiledDecoder if HAS_EXTENSION else PureDecoder
    return make(names)


def decode(events: DataFrame, types: Iterable[str] | None = None) -> DataFrame:
    """Adds the typed content of records to events.

    Args:
        events: at least key, value, topic, partition, offset and timestamp: the data source `kcore`, or Spark's own
            `kafka`. If it also has the columns `control` and `batch_only`, `status` distinguishes control records
            and batches without records.
        types: names of the record types that get columns; None: all. Rows of other types keep all other columns. The
            columns of a type exist in every row, and are null for rows of other types. So name only the types that you
            need.

    Raises:
        KcoreError: a name is not a record type.
    """
    names = tuple(record_types()) if types is None else tuple(types)
    decoder(names)  # refuses a wrong name here instead of in a task
    extra = [name for name in FLAGS if name in events.columns]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        of_task = decoder(names)
        return (decode_batch(batch, names, of_task) for batch in batches)

    return events.select(*KEPT, *extra).mapInArrow(run, decoded_ddl(names))


def decode_batch(batch: pa.RecordBatch, names: tuple[str, ...], using: Decoder | None = None) -> pa.RecordBatch:
    """Decodes one batch; keeps the number and order of rows.

    Args:
        batch: has the columns `KEPT`.
        names: the record types that get columns.
        using: a decoder for these names, reused across batches; None: a new one.
    """
    decoded = Columns(*(using or decoder(names)).decode(_input_columns(batch)))
    arrays = [*(batch.column(name) for name in KEPT), *decoded.heads, *decoded.records]
    heads = [field.name for field in arrow_struct(HEAD_DDL)]
    return pa.RecordBatch.from_arrays(arrays, names=[*KEPT, *heads, *names])


FLAGS: Final = ("control", "batch_only")
_INPUT_TYPES: Final = {
    "topic": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "control": pa.bool_(),
    "batch_only": pa.bool_(),
}


def _input_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the input columns in the types that decoders expect. Spark's settings may select Arrow's large types."""
    columns = {}
    for name, kind in _INPUT_TYPES.items():
        if name in batch.schema.names:
            column = batch.column(name)
            columns[name] = column if column.type == kind else column.cast(kind)
    return pa.RecordBatch.from_pydict(columns)
