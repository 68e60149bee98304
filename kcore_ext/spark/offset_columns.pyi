from collections.abc import Mapping
from typing import final

from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.record_columns import Finished

@final
class OffsetColumns:
    """Collects rows of the table `offsets` (`kcore.spark.state.table_schemas`). `len` is the number of rows.

    Args:
        coordinator_partition: the partition of all rows.
    """

    def __init__(self, coordinator_partition: int) -> None: ...
    def __len__(self) -> int: ...
    def add(self, group: str, topic: str, partition: int, offset: OffsetAndMetadata, producer_id: int = -1) -> None:
        """Appends one offset. A pending offset of a transaction comes with its producer id."""

    def add_all(self, group: str, topic: str, partitions: Mapping[int, OffsetAndMetadata]) -> None:
        """Appends a group's committed offsets of a topic, by partition."""

    def take(self) -> list[Finished]:
        """Returns the columns in the table's order, and removes all rows."""

@final
class OffsetRecords:
    """Collects the records of committed offsets, as they are written now. `len` is the number of records."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add_all(self, group: str, topic: str, partitions: Mapping[int, OffsetAndMetadata]) -> None:
        """Appends a group's committed offsets of a topic, by partition."""

    def take(self) -> list[Finished]:
        """Returns the columns key, value, offset and timestamp (the time of the commit in ms), and removes all
        rows.
        """
