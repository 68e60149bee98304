"""Runs of stored batches: lists of (base offset, batch) from the log's storage, walked in C."""

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

def gather(entries: Iterator[tuple[bytes, bytes]], number: int, limit: int, max_bytes: int, max_batches: int) -> Run:
    """Takes a partition's batches from entries of the storage.

    Args:
        entries: (key, batch), where a key is a partition's number (4 bytes) and a base offset (8 bytes), big-endian.
        number: the number of the partition; the first entry of another partition ends the run.
        limit: the first batch with this base offset or a higher one ends the run.
        max_bytes: the function stops after the batch with which the total size reaches this number.
        max_batches: the maximum number of batches.

    Raises:
        ValueError: a key does not have 12 bytes.
    """

def count_sound(run: Run, offset: int, cleaned_to: int, check_crc: bool) -> int:
    """Counts the leading batches that are whole and contiguous, and contain their own base offset.

    Args:
        run: the batches.
        offset: required start of the first batch. Each further batch must start at the end of the batch before it.
        cleaned_to: below this offset a batch may also start later, because compaction leaves gaps.
        check_crc: True to check the CRC as well.
    """

def simple_run(run: Run, index: int) -> SimpleRun:
    """Counts the simple batches from `index` on.

    A simple batch is neither a control batch, nor transactional, nor compressed, nor empty.
    """

def replay_producers(run: Run, replay: Callable[[bytes], object]) -> None:
    """Calls `replay` for each batch that has a producer id."""
