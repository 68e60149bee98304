from collections.abc import Mapping
from typing import final

from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.record_columns import Finished

@final
class OffsetColumns:
    """Collects rows of the table `offsets` (`kcore.spark.state.table_schemas`); as long as it has rows.

    Args:
        coordinator_partition: the partition that they all come from.
    """

    def __init__(self, coordinator_partition: int) -> None: ...
    def __len__(self) -> int: ...
    def add(self, group: str, topic: str, partition: int, offset: OffsetAndMetadata, producer_id: int = -1) -> None:
        """One offset; one that a transaction has pending comes with its producer id."""

    def add_all(self, group: str, topic: str, partitions: Mapping[int, OffsetAndMetadata]) -> None:
        """A group's committed offsets of a topic, by partition."""

    def take(self) -> list[Finished]:
        """The columns, in the table's order. It has no rows then."""
