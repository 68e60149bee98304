from collections.abc import Callable, Mapping
from typing import final

from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.column_store import Input
from kcore_ext.spark.record_columns import Finished

@final
class OffsetColumns:
    """The rows of the table `offsets` (`kcore.spark.state.table_schemas`), as columns. `len` is the number of rows.

    Args:
        coordinator_partition: the partition of all rows.
    """

    def __init__(self, coordinator_partition: int) -> None: ...
    def __len__(self) -> int: ...
    def add(self, group: str, topic: str, partition: int, offset: OffsetAndMetadata, producer_id: int = -1) -> None:
        """Appends one offset. For a pending offset, `producer_id` is the producer of the open transaction."""

    def add_all(self, group: str, topic: str, partitions: Mapping[int, OffsetAndMetadata]) -> None:
        """Appends a group's committed offsets of a topic, by partition."""

    def take(self) -> list[Finished]:
        """Returns the columns in the table's order, and removes all rows."""

@final
class OffsetRecords:
    """The records of committed offsets as columns, in the version that kcore writes. `len` is the number of records."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add_all(self, group: str, topic: str, partitions: Mapping[int, OffsetAndMetadata]) -> None:
        """Appends a group's committed offsets of a topic, by partition."""

    def take(self) -> list[Finished]:
        """Returns the columns key, value, offset and timestamp (the time of the commit in ms), and removes all
        rows.
        """

def load_offsets(
    size: int, columns: list[Input], topics_of: Callable[[str], dict[str, dict[int, OffsetAndMetadata]]]
) -> int:
    """Adds committed offsets to the engine's dictionaries; returns the number of new offsets.

    Args:
        size: the number of offsets.
        columns: group, topic, partition, offset, leader epoch, metadata, commit time, expiration time, topic id and
            record offset, with the types of the table `offsets`. Only the topic id may be null.
        topics_of: group -> its dictionary of offsets by topic and partition.

    Raises:
        ValueError: an offset has no group or no topic, or its topic id does not have 32 hexadecimal digits.
    """
