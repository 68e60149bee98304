from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, final

from kcore_ext.spark.column_store import Input

STATUSES: Final[tuple[str, ...]]
"""The names of the statuses of rows, indexed by the numbers that `RecordColumns.take_heads` returns."""

Finished = tuple[int, int, list[Any], list[Any]]
"""A column in Arrow's layout: length, null count, buffers, child columns.

The validity buffer is None if no value is null.
"""

@final
class RecordColumns:
    """A decoder that converts keys and values of internal records to typed columns, one batch of rows at a time.

    Args:
        topics: topic -> a tuple (record type, name, key class, value class) for each record type of the topic. The
            classes are declared with `kcore.protocol.schema`.
        types: the names of the record types for which the decoder makes columns. It decodes records of other types, but
            does not store them.
    """

    def __init__(self, topics: Mapping[str, Sequence[tuple[int, str, type, type]]], types: Collection[str]) -> None: ...
    @property
    def names(self) -> list[str]:
        """The names of the record types, indexed by the numbers that `take_heads` returns."""

    def read(
        self, size: int, topics: Input, keys: Input, values: Input, control: Input | None, batch_only: Input | None
    ) -> list[int]:
        """Decodes a batch. The caller must take the columns before it decodes the next batch.

        Args:
            size: the number of rows.
            topics: the column of topic names, as text.
            keys: the column of record keys, as bytes.
            values: the column of record values, as bytes.
            control: a column of booleans, True for control records; None: False in all rows.
            batch_only: a column of booleans, True for batches without records; None: False in all rows.

        Returns:
            The numbers of the rows whose record is malformed or has an unknown version.

        Raises:
            MemoryError: out of memory; this object must not be used any more.
        """

    def take_heads(self) -> tuple[Finished, Finished, Finished, Finished]:
        """Returns four columns with a value for each row.

        The columns are the status (int8, an index of `STATUSES`), the index of the record type's name in `names`, the
        number of the record type, and the version of the value. The last three are nullable int32.
        """

    def take(self, name: str) -> Finished | None:
        """Returns the column of a record type; None if no row has the type.

        The column has structs {key, value}, and null in rows of other types.
        """
