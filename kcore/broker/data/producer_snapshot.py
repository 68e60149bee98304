"""Snapshot format of a partition's producers: a restart replays only the log after the snapshot.

A snapshot is the durable state at the high watermark, without the changes by staged batches. Its first chunk is the
head with the format version. Chunks of producers follow, and then chunks of aborted transactions. Each chunk begins
with its kind. All numbers are big-endian.

A producer has its id (8 bytes), epoch (2), coordinator epoch (4), last timestamp (8), the first offset of its open
transaction (8) and the number of its batches (1). Each batch has its first and last sequence (4 each), base offset,
last offset and timestamp (8 each). `ProducerEntry` encodes and decodes producers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from kcore.broker.data.aborted_transactions import AbortedTransaction
from kcore.broker.data.producer_state import ProducerEntry, ProducerStates

FORMAT_VERSION = 1
PER_CHUNK = 1_000
"""Number of producers, or of aborted transactions, in one chunk."""

_HEAD, _PRODUCERS, _ABORTED = 0, 1, 2
_KIND_AND_VERSION = struct.Struct(">bh")
_KIND = struct.Struct(">b")
_TRANSACTION = struct.Struct(">qqqq")


def encode(states: ProducerStates, high_watermark: int | None = None) -> Iterator[bytes]:
    """Yields the chunks of a snapshot of `states`.

    Args:
        states: the producers and the aborted transactions.
        high_watermark: the end of the durable batches; the snapshot omits changes by later batches. None: it omits
            no changes.
    """
    yield _KIND_AND_VERSION.pack(_HEAD, FORMAT_VERSION)
    entries, aborted = list(states.entries.values()), states.aborted.entries
    if high_watermark is not None:
        entries = states.durable_entries()
        aborted = [entry for entry in aborted if entry.last_offset < high_watermark]
    for start in range(0, len(entries), PER_CHUNK):
        yield _KIND.pack(_PRODUCERS) + b"".join([entry.encode() for entry in entries[start : start + PER_CHUNK]])
    for start in range(0, len(aborted), PER_CHUNK):
        some = aborted[start : start + PER_CHUNK]
        yield _KIND.pack(_ABORTED) + b"".join(_TRANSACTION.pack(*transaction) for transaction in some)


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
                ProducerEntry.decode_all(chunk, _KIND.size, states.entries)
            elif kind == _ABORTED:
                for fields in _TRANSACTION.iter_unpack(chunk[_KIND.size :]):
                    states.aborted.add(AbortedTransaction(*fields))
            else:
                raise ValueError(f"unknown chunk kind {kind}")
    except struct.error as error:
        raise ValueError(str(error)) from error
    states.find_open_transactions()
    return states
