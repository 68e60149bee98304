"""Snapshot format of a partition's producers: a restart replays only the log after the snapshot.

A snapshot is the state at an offset, taken while nothing is staged. Chunks: one head (format version), then chunks of
producers, then chunks of aborted transactions; each begins with its kind. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from kcore.broker.data.aborted_transactions import AbortedTransaction
from kcore.broker.data.producer_state import BatchMetadata, ProducerEntry, ProducerStates

FORMAT_VERSION = 1
PER_CHUNK = 1_000
"""Number of producers, or of aborted transactions, in one chunk."""

_HEAD, _PRODUCERS, _ABORTED = 0, 1, 2
_KIND_AND_VERSION = struct.Struct(">bh")
_KIND = struct.Struct(">b")
# producer id, epoch, coordinator epoch, last timestamp, first offset of the open transaction, number of batches
_ENTRY = struct.Struct(">qhiqqb")
_BATCH = struct.Struct(">iiqqq")
_TRANSACTION = struct.Struct(">qqqq")


def encode(states: ProducerStates) -> Iterator[bytes]:
    """Yields the chunks of a snapshot of `states`, which must not have staged changes."""
    yield _KIND_AND_VERSION.pack(_HEAD, FORMAT_VERSION)
    entries = list(states.entries.values())
    for start in range(0, len(entries), PER_CHUNK):
        yield _KIND.pack(_PRODUCERS) + b"".join(map(_encode_entry, entries[start : start + PER_CHUNK]))
    aborted = states.aborted.entries
    for start in range(0, len(aborted), PER_CHUNK):
        some = aborted[start : start + PER_CHUNK]
        yield _KIND.pack(_ABORTED) + b"".join(_TRANSACTION.pack(*transaction) for transaction in some)


def _encode_entry(entry: ProducerEntry) -> bytes:
    head = _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        entry.coordinator_epoch,
        entry.last_timestamp_ms,
        entry.txn_first_offset,
        len(entry.batches),
    )
    return head + b"".join(_BATCH.pack(*batch) for batch in entry.batches)


def decode(chunks: Iterable[bytes]) -> ProducerStates:
    """Decodes the chunks that `encode` wrote.

    Raises:
        ValueError: the chunks are not a snapshot, or its format is unknown to this version.
    """
    states = ProducerStates()
    try:
        for index, chunk in enumerate(chunks):
            (kind,) = _KIND.unpack_from(chunk)
            if index == 0:
                version = _KIND_AND_VERSION.unpack(chunk)[1]
                if kind != _HEAD or version != FORMAT_VERSION:
                    raise ValueError(f"unknown snapshot: kind {kind}, version {version}")
            elif kind == _PRODUCERS:
                _decode_entries(chunk, states)
            elif kind == _ABORTED:
                for fields in _TRANSACTION.iter_unpack(chunk[_KIND.size :]):
                    states.aborted.add(AbortedTransaction(*fields))
            else:
                raise ValueError(f"unknown chunk kind {kind}")
    except struct.error as error:
        raise ValueError(str(error)) from error
    states.find_open_transactions()
    return states


def _decode_entries(chunk: bytes, states: ProducerStates) -> None:
    position = _KIND.size
    while position < len(chunk):
        producer_id, epoch, coordinator_epoch, timestamp_ms, first_offset, count = _ENTRY.unpack_from(chunk, position)
        position += _ENTRY.size
        batches = []
        for _ in range(count):
            batches.append(BatchMetadata(*_BATCH.unpack_from(chunk, position)))
            position += _BATCH.size
        entry = states.entries[producer_id] = ProducerEntry(producer_id)
        entry.restore((epoch, coordinator_epoch, timestamp_ms, first_offset, tuple(batches)))
