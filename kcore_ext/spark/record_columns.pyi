from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, final

from kcore_ext.spark.column_store import Input

STATUSES: Final[tuple[str, ...]]
"""The statuses of rows, indexed by the numbers in heads."""

Finished = tuple[int, int, list[Any], list[Any]]
"""A column in Arrow's layout: length, null count, buffers (None for an unneeded validity), child columns."""

@final
class RecordColumns:
    """The decoded keys and values of internal records as typed columns, batch by batch.

    Args:
        topics: topic -> (record type, name, key class, value class) of each of its record types; the classes are
            declared ones (`kcore.protocol.schema`).
        types: the names of the types that get columns; records of other types are only checked.
    """

    def __init__(self, topics: Mapping[str, Sequence[tuple[int, str, type, type]]], types: Collection[str]) -> None: ...
    @property
    def names(self) -> list[str]:
        """The names of the record types, indexed by the numbers in heads."""

    def read(
        self, size: int, topics: Input, keys: Input, values: Input, control: Input | None, batch_only: Input | None
    ) -> list[int]:
        """Decodes a batch. The caller takes its columns before the next batch.

        Args:
            size: the number of rows.
            topics: text. keys, values: bytes. control, batch_only: booleans; None: False.

        Returns:
            The rows that are malformed or of an unknown version.

        Raises:
            MemoryError: out of memory; this object must not be used any more.
        """

    def take_heads(self) -> tuple[Finished, Finished, Finished, Finished]:
        """Returns status (int8), number of the type's name, record type, and value version (int32, nullable)."""

    def take(self, name: str) -> Finished | None:
        """Returns a type's column: structs {key, value}, null in other rows; None if the batch lacks the type."""
