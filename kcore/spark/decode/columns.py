"""Records as typed columns: a struct for each record type, over Arrow batches.

Nothing is dropped and nothing fails: what cannot be decoded is a row that says why (`status`, `detail`), with its bytes
still beside it. The work is done by the compiled extension where it is installed (`decode_compiled`), and by its twin
in plain Python elsewhere (`decode_pure`); both give the same rows.
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
except ImportError:  # an executor without a build
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
    """What a decoder makes of the columns topic, key and value.

    Attributes:
        heads: the columns of `HEAD_DDL`.
        records: a struct column for each record type that was asked for.
    """

    heads: list[pa.Array]
    records: list[pa.Array]


class Decoder(Protocol):
    """Decodes batch after batch of the record types that it was made for. Not for several threads at once."""

    def decode(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], list[pa.Array]]:
        """The columns of `HEAD_DDL`, and a struct column for each record type; as many rows as the batch has.

        Args:
            batch: has the columns topic, key and value, and maybe control and batch_only, as Arrow's string, binary
                and bool.
        """


def decoder(names: Iterable[str]) -> Decoder:
    """A decoder for these record types: the compiled one where there is one.

    Raises:
        KcoreError: a name is no record type's.
    """
    names = tuple(names)
    unknown = sorted(set(names) - set(record_types()))
    if unknown:
        raise KcoreError(f"{', '.join(unknown)}: no such record type; there are {', '.join(record_types())}")
    make: Callable[[tuple[str, ...]], Decoder] = CompiledDecoder if HAS_EXTENSION else PureDecoder
    return make(names)


def decode(events: DataFrame, types: Iterable[str] | None = None) -> DataFrame:
    """Events with what their records say, typed.

    Args:
        events: at least key, value, topic, partition, offset and timestamp: the data source `kcore`, or Spark's own
            `kafka`. With the columns `control` and `batch_only`, rows that are no records are told apart.
        types: names of the record types that get columns; None: all. Rows of other types keep everything else. Each
            type costs every row its columns, even where they are null: name those that are looked at.

    Raises:
        KcoreError: a name is no record type's.
    """
    names = tuple(record_types()) if types is None else tuple(types)
    decoder(names)  # a wrong name is refused here, not by a task
    extra = [name for name in FLAGS if name in events.columns]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        of_task = decoder(names)
        return (decode_batch(batch, names, of_task) for batch in batches)

    return events.select(*KEPT, *extra).mapInArrow(run, decoded_ddl(names))


def decode_batch(batch: pa.RecordBatch, names: tuple[str, ...], using: Decoder | None = None) -> pa.RecordBatch:
    """One batch, decoded; as many rows as before, in their order.

    Args:
        batch: has the columns `KEPT`.
        names: which record types get columns.
        using: a decoder for these names, kept from batch to batch; None: a new one.
    """
    decoded = Columns(*(using or decoder(names)).decode(_usual(batch)))
    arrays = [*(batch.column(name) for name in KEPT), *decoded.heads, *decoded.records]
    heads = [field.name for field in arrow_struct(HEAD_DDL)]
    return pa.RecordBatch.from_arrays(arrays, names=[*KEPT, *heads, *names])


FLAGS: Final = ("control", "batch_only")
_USUAL: Final = {
    "topic": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "control": pa.bool_(),
    "batch_only": pa.bool_(),
}


def _usual(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are decoded, in the types that decoders take: Spark may be set to hand over larger ones."""
    columns = {}
    for name, kind in _USUAL.items():
        if name in batch.schema.names:
            column = batch.column(name)
            columns[name] = column if column.type == kind else column.cast(kind)
    return pa.RecordBatch.from_pydict(columns)
