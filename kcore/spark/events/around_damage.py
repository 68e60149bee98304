"""Reads a stored log, and continues after damaged batches and after unreadable places of the storage."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeVar

from kcore.log import CorruptLogError, FailureReason, LogError, PartitionLog
from kcore.log.batch_header import offsets_and_timestamp

T = TypeVar("T")


def around_damage(
    log: PartitionLog, position: int, stop: int | None, damaged: Callable[[int, str, str], None]
) -> Iterator[tuple[int, bytes]]:
    """Yields the batches of a stored log. Skips missing or unreadable batches.

    Reports each unreadable batch once, and each place at which the storage is unreadable, for example because a key has
    a wrong size. Reports missing batches only at the end of the log. The caller detects all other missing batches as
    gaps between the offsets of the yielded batches.

    Args:
        log: the log to read.
        position: the first offset to read.
        stop: the offset before which to stop; None: the end of the log.
        damaged: called with the offset, the kind and the description of each report.

    Raises:
        LogError: the storage cannot be read, for another reason than damage.
    """
    read, begun = -1, -1  # the base offset of the last batch, and the offset at which the last read began
    while True:
        try:
            begun = position = position if position > begun else begun + 1
            for read, batch in log.batches(position, stop, check_crc=False):
                yield read, batch
                position = read + 1
            return
        except CorruptLogError as error:
            at = position if error.offset is None else error.offset
            around = _bases(log, min(at, position))
            behind = [base for base in around if base >= position and base != at]
            # The reader checks the CRC of each batch that it gets, so it reports damage in the last batch itself.
            if at != read and (at in around or not behind):
                damaged(at, "corrupt", error.what)
            if not behind:
                return
            position = behind[0]
        except LogError as error:
            if error.reason is not FailureReason.CORRUPT:
                raise
            end = log.high_watermark if stop is None else min(stop, log.high_watermark)
            position = yield from _single_batches(log, position, end, damaged)
            damaged(position, "corrupt", f"{error}; `kcore log verify` names the entry, `kcore log repair` removes it")
            position = _next_readable(log, position, end)
            if position >= end:
                return


def _unless_damaged(call: Callable[[], T]) -> T | None:
    """Returns the result of a read; None if the storage is damaged there.

    Raises:
        CorruptLogError: a batch is damaged or missing.
        LogError: the storage cannot be read, for another reason than damage.
    """
    try:
        return call()
    except CorruptLogError:
        raise
    except LogError as error:
        if error.reason is not FailureReason.CORRUPT:
            raise
        return None


def _bases(log: PartitionLog, offset: int) -> list[int]:
    """Returns the base offsets of the batch at an offset and of two later batches; fewer if these are unreadable."""
    for count in (3, 2, 1):
        batches = _unless_damaged(partial(log.summaries, offset, count))
        if batches is not None:
            return [batch.base_offset for batch in batches]
    return []


def _single_batches(
    log: PartitionLog, position: int, end: int, damaged: Callable[[int, str, str], None]
) -> Generator[tuple[int, bytes], None, int]:
    """Yields one batch after the other, up to the first place at which the storage is unreadable.

    A read of several batches would fail before it returns the sound batches before that place.

    Returns:
        The offset after the last batch before that place, or `end`.
    """
    while position < end:
        try:
            batches = _unless_damaged(partial(log.read, position, 1))
        except CorruptLogError as error:
            around = _bases(log, position)
            behind = [base for base in around if base > position]
            if position in around:
                damaged(position, "corrupt", error.what)
                position += 1
            if not behind:
                return position
            position = behind[0]
            continue
        if not batches:
            return position
        base, last, _ = offsets_and_timestamp(batches[0])
        if base >= end:
            return end
        position = last + 1
        yield base, batches[0]
        if _unless_damaged(partial(log.summaries, base, 1)) is None:  # it also reads the next key
            return position
    return end


def _next_readable(log: PartitionLog, position: int, end: int) -> int:
    """Returns the first offset from `position` on at which the log is readable; at most `end`.

    If other unreadable places follow, the result may be a later offset.
    """
    readable, step = position, 1
    while readable < end and not _is_readable(log, readable):
        readable, step = readable + step, 2 * step
    readable = min(readable, end)
    while readable - position > 1:
        middle = (position + readable) // 2
        if _is_readable(log, middle):
            readable = middle
        else:
            position = middle
    return readable


def _is_readable(log: PartitionLog, offset: int) -> bool:
    """Returns True if a read at an offset returns a batch, or fails only because of that batch."""
    try:
        return _unless_damaged(partial(log.read, offset, 1)) is not None
    except CorruptLogError:
        return True
