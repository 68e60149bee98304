from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, final

from kcore_ext.spark.column_store import Input

STATUSES: Final[tuple[str, ...]]
"""The names of the statuses of rows, indexed by the numbers that `RecordColumns.take_heads` returns."""

Finished = tuple[int, int, list[Any], list[Any]]
"""A column in Arrow's layout: length, null count, buffers (None for an unneeded validity), child columns."""

@final
class RecordColumns:
    """The decoded keys and values of internal records as typed columns, batch by batch.

    Args:
        topics: topic -> (record type, name, key class, value class) of each of its record types. The classes are
            declared with `kcore.protocol.schema`.
        types: the names of the record types that get columns; records of other types are decoded, but not stored.
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
            topics: a column of text. keys, values: columns of bytes. control, batch_only: columns of booleans; None:
                False in all rows.

        Returns:
            The rows that are malformed or of an unknown version.

        Raises:
            MemoryError: out of memory; this object must not be used any more.
        """

    def take_heads(self) -> tuple[Finished, Finished, Finished, Finished]:
        """Returns four columns: the status (int8), and as nullable int32 the index of the type's name in `names`, the
        record type, and the version of the value.
        """

    def take(self, name: str) -> Finished | None:
        """Returns the column of a record type; None if no row has the type.

        The column has structs {key, value}, and null in rows of other types.
        """
