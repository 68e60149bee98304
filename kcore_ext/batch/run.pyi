"""Runs of stored batches: lists of (base offset, batch) as the log's storage hands them out, walked in C."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

Run = list[tuple[int, bytes]]

class SimpleRun(NamedTuple):
    """What `simple_run` found.

    Attributes:
        stop: the index behind the last plain batch.
        records: how many records they have.
        size_bytes: how many bytes they have.
        next_offset: the offset behind them; meaningless if there is none.
    """

    stop: int
    records: int
    size_bytes: int
    next_offset: int

def gather(entries: Iterator[tuple[bytes, bytes]], number: int, limit: int, max_bytes: int, max_batches: int) -> Run:
    """Takes a partition's batches from entries of the storage.

    Args:
        entries: (key, batch), where a key is a partition's number (4 bytes) and a base offset (8 bytes), big-endian.
        number: the partition; the first entry of another ends the run.
        limit: the first batch whose base offset is not below it ends the run.
        max_bytes: the batch that reaches it is the last one.
        max_batches: how many batches there may be.

    Raises:
        ValueError: a key has not 12 bytes.
    """

def count_sound(run: Run, offset: int, cleaned_to: int, check_crc: bool) -> int:
    """How many batches from the first one on are whole, say the base offset they stand at, and follow one another.

    Args:
        run: the batches.
        offset: where the first one has to begin; each further one where the one before it ends.
        cleaned_to: up to here a batch may also begin later: compaction has left a gap.
        check_crc: whether the CRC counts too.
    """

def simple_run(run: Run, index: int) -> SimpleRun:
    """How far the batches from `index` on are plain: neither control, nor transactional, nor compressed, nor empty."""

def replay_producers(run: Run, replay: Callable[[bytes], object]) -> None:
    """Calls `replay` with each batch that has a producer id."""
