from collections.abc import Callable
from typing import Any

class BatchSurvey:
    """A check of a client's batch in steps: size, magic and CRC first, then each record.

    Args:
        buffer: bytes, bytearray or memoryview with the batch at its beginning; bytes after the batch are ignored.

    Raises:
        CorruptBatchError: the batch is invalid; the attribute `fault` of the error names the failed check. The
            constructor and the methods raise this error.

    Attributes:
        codec: the codec of the batch.
        earliest_ms: the smallest timestamp of the records; 2^63 - 1 if no record has a timestamp.
        latest_ms: the largest timestamp of the records; -1 if no record has a timestamp. In a batch with an append
            time, every record has that time.
        keyless: the number of records without a key.
        consecutive: True if the offset deltas of the records are 0, 1, 2, ...
    """

    def __init__(self, buffer: Any) -> None: ...
    @property
    def codec(self) -> int: ...
    @property
    def earliest_ms(self) -> int: ...
    @property
    def latest_ms(self) -> int: ...
    @property
    def keyless(self) -> int: ...
    @property
    def consecutive(self) -> bool: ...
    def open(
        self, decompress: Callable[[int, Any, int], bytes] | None = None, max_decompressed_bytes: int = ...
    ) -> None:
        """Begins the check of the records. If they are compressed, calls `decompress(codec, data, max_size_bytes)`.

        Raises:
            ValueError: the batch is compressed, and `decompress` is None.
        """

    def advance(self, records: int = ..., size_bytes: int = ...) -> bool:
        """Checks the next records; returns True once all records of the batch were checked.

        Stops after `records` records, or as soon as their total size is at least `size_bytes`.
        """

def survey(
    buffer: Any, *, decompress: Callable[[int, Any, int], bytes] | None = None, max_decompressed_bytes: int = ...
) -> tuple[int, int, int, bool]:
    """Checks a batch that a client sent.

    Returns:
        The tuple (earliest_ms, latest_ms, keyless, consecutive), with the values of the properties of the class.
    """

def find_by_timestamp(
    batch: Any, timestamp_ms: int, min_offset: int, decompress: Callable[[int, Any, int], bytes]
) -> tuple[int, int] | None:
    """Returns (offset, timestamp) of a batch's first record with a timestamp of at least `timestamp_ms` and an offset
    of at least `min_offset`; None if there is no such record.
    """
