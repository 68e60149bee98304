"""Compiled loops over runs, which are lists of (base offset, batch) from the storage of a log."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

Run = list[tuple[int, bytes]]

class SimpleRun(NamedTuple):
    """The result of `simple_run`.

    Attributes:
        stop: the index after the last simple batch.
        records: the number of records in the simple batches.
        size_bytes: the total size of the simple batches.
        next_offset: the offset after the last simple batch; undefined if there is none.
    """

    stop: int
    records: int
    size_bytes: int
    next_offset: int

def spans(base: int, value: bytes | memoryview) -> list[tuple[int, int, int]]:
    """Returns (base offset, start, stop) for each batch of a value of the storage.

    Only a value of at most `kcore_ext.log.partition.MAX_VALUE_BYTES` has several batches. A damaged batch does not hide
    the other batches: CRCs show where the next one begins. If adjacent batches are damaged, one item of the result can
    contain several of them.

    Args:
        base: the base offset in the key of the value.
        value: one or more consecutive batches.
    """

def gather(
    entries: Iterator[tuple[bytes, bytes]], number: int, offset: int, limit: int, max_bytes: int, max_batches: int
) -> Run:
    """Returns the next batches of a partition from an iterator over entries of the storage.

    Args:
        entries: pairs (key, value). A key consists of the partition's number (4 bytes) and the base offset of the first
            batch (8 bytes), both big-endian. A value consists of one or more consecutive batches.
        number: the number of the partition. The run ends before the first entry of another partition.
        offset: the run begins with the batch that contains this offset, or else with the first later batch.
        limit: the run ends before the first batch whose base offset is at least this offset.
        max_bytes: the run ends as soon as the total size of its batches is at least this number.
        max_batches: the maximum number of batches.

    Raises:
        ValueError: a key does not have 12 bytes.
    """

def count_sound(run: Run, offset: int, cleaned_to: int, check_crc: bool) -> int:
    """Counts the batches at the beginning of a run that are complete and contiguous.

    The base offset in a batch must equal the base offset under which the batch is stored.

    Args:
        run: the batches.
        offset: the required base offset of the first batch. Each further batch must begin at the offset at which the
            batch before it ends.
        cleaned_to: up to this offset, gaps between batches are allowed, because compaction leaves gaps.
        check_crc: True to check the CRC of each batch as well.
    """

def simple_run(run: Run, index: int) -> SimpleRun:
    """Finds the simple batches that follow each other from `index` on.

    A simple batch is neither a control batch, nor transactional, nor compressed, nor empty.
    """

def replay_producers(run: Run, replay: Callable[[bytes], object]) -> None:
    """Calls `replay(batch)` for each batch of a run that has a producer id."""
