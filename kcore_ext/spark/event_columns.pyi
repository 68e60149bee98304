from collections.abc import Callable
from typing import final

from kcore_ext.batch.header import AnyBuffer
from kcore_ext.spark.record_columns import Finished

@final
class EventColumns:
    """Collects the records of batches as columns; as long as it has rows."""

    def __len__(self) -> int: ...
    def append(
        self,
        batch: AnyBuffer,
        position: int,
        first: int,
        stop: int,
        decompress: Callable[[int, memoryview, int], bytes],
    ) -> None:
        """Takes the records of a batch, or a row that stands for a batch without records. Its CRC is not checked.

        Args:
            batch: where it lies; position: from which byte on.
            first: the first offset that is wanted; stop: the one before which to stop.
            decompress: as for `kcore_ext.batch.iter_records`.

        Raises:
            CorruptBatchError: the records are damaged; those before the damage were taken.
        """

    def take(self) -> list[Finished]:
        """Key, value, offset, timestamp (µs, null for none), its type, headers, producer's id and epoch, last sequence
        number, transactional, control, batch_only. It has no rows then.
        """
