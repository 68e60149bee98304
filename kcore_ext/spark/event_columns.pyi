from collections.abc import Callable
from typing import final

from kcore_ext.batch.header import AnyBuffer
from kcore_ext.spark.record_columns import Finished

@final
class EventColumns:
    """The records of batches as columns of events. `len(columns)` is the number of rows."""

    def __len__(self) -> int: ...
    def append(
        self,
        batch: AnyBuffer,
        position: int,
        first: int,
        stop: int,
        decompress: Callable[[int, memoryview, int], bytes],
    ) -> None:
        """Appends the records of a batch, or one row for a batch without records. Does not check the CRC.

        Args:
            batch: a buffer that contains the batch.
            position: the position of the batch's first byte in the buffer.
            first: the first offset to append.
            stop: the offset after the last offset to append.
            decompress: as for `kcore_ext.batch.iter_records`.

        Raises:
            CorruptBatchError: a record is damaged; the records before it were appended.
        """

    def take(self) -> list[Finished]:
        """Returns the columns and removes all rows.

        The columns are key, value, offset, timestamp (µs, null for none), timestamp type, headers, producer id and
        epoch, last sequence number, transactional, control, batch_only.
        """
