from typing import Final

from kcore_ext.log.partition import SealedPartition

def journal_entry(
    partitions: list[SealedPartition], max_bytes: int, identity: bytes, number: int, flags: int
) -> bytes | None:
    """Encodes the new batches of a write set as an entry of the journal. `kcore.log.journal_file` describes the layout.

    Args:
        partitions: the partitions of the write set.
        max_bytes: the maximum size of all batches.
        identity: the 16 bytes that identify the journal.
        number: the number of the entry in the journal, from 0.
        flags: the flags of the entry.

    Returns:
        The entry; None if the batches exceed `max_bytes`, or if the write set has changes other than new batches.

    Raises:
        ValueError: the identity does not have 16 bytes.
    """

def sort_batches(entries: list[bytes], by_number: dict[int, list[tuple[int, bytes]]]) -> None:
    """Adds the batches of entries, with their base offsets, to the lists of their partitions.

    The call can be repeated after an exception: it skips batches at or below a partition's last base offset.

    Raises:
        ValueError: an entry ends within a batch.
    """

MAX_VALUE_BYTES: Final = 1_338
"""The maximum size of a value with several batches. Three such values fill a page of LMDB.

Each value costs a call of LMDB, for which the thread releases the GIL and waits for it again. Small batches therefore
share values.

LMDB stores a value of more than 2,018 bytes in pages that have no key. If the device wrote such a page to a wrong
place, the value would have sound batches of another partition, and nothing would show this. A smaller value is in one
page together with its key, so `check_pages` and the order of the keys show such a write.
"""

def log_pairs(entries: list[bytes]) -> tuple[list[tuple[bytes, bytes]], list[tuple[int, int]], int]:
    """Converts entries to the key-value pairs of the log's storage.

    Consecutive batches of a partition share a value of up to `MAX_VALUE_BYTES`. A larger batch is a value of its own.
    If a batch is in two entries, the second one is ignored.

    Args:
        entries: entries of the journal, in any order.

    Returns:
        A tuple of three values. The first value is the pairs (key, value), ascending; a key consists of the partition
        number and the base offset of the first batch in the value. The second value is the number of each partition
        and its first base offset. The third value is the size of the entries without their heads.

    Raises:
        ValueError: an entry ends within a batch.
    """
