from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, final

from kcore_ext.spark.column_store import Input

STATUSES: Final[tuple[str, ...]]
"""What a row may be, by the numbers that heads have."""

Finished = tuple[int, int, list[Any], list[Any]]
"""A column in Arrow's layout: length, nulls, buffers (None for a validity that is not needed), columns below it."""

@final
class RecordColumns:
    """Reads keys and values of internal records into typed columns, batch after batch.

    Args:
        topics: topic -> (record type, name, key's class, value's class) of every record type that it may hold; classes
            are declared ones (`kcore.protocol.schema`).
        wanted: the names of those that get columns; the others are read to see whether they can be.
    """

    def __init__(
        self, topics: Mapping[str, Sequence[tuple[int, str, type, type]]], wanted: Collection[str]
    ) -> None: ...
    @property
    def names(self) -> list[str]:
        """The record types' names, by the numbers that heads have."""

    def read(
        self, size: int, topics: Input, keys: Input, values: Input, control: Input | None, batch_only: Input | None
    ) -> list[int]:
        """Reads a batch; its columns are then taken.

        Args:
            size: how many rows the columns have.
            topics: text. keys, values: bytes. control, batch_only: truth values; None: false.

        Returns:
            The rows that are malformed or of an unknown version.

        Raises:
            MemoryError: there was not enough; this object is of no use any more.
        """

    def take_heads(self) -> tuple[Finished, Finished, Finished, Finished]:
        """Status (int8), number of the record type's name, record type, version of the value (int32, maybe null)."""

    def take(self, name: str) -> Finished | None:
        """A record type's column: structs {key, value}, null in other rows; None if the batch has none of the type."""
