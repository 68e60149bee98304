"""Replays the producers of a partition from batch headers (KIP-98)."""

from __future__ import annotations

from kcore.broker.data.producer_state import BatchMetadata, ProducerEntry, ProducerStates
from kcore.spark.events.event import EventRow

END_MARKERS = (0, 1)
MARKER_BYTES = 6


class Producers:
    """The producers of one partition, tracked by the broker's class `ProducerStates`.

    Attributes:
        states: the object of this class.
    """

    __slots__ = ("states",)

    def __init__(self) -> None:
        self.states = ProducerStates()

    def replay(self, row: EventRow) -> None:
        """Applies a row that has a producer id."""
        states = self.states
        if not row.control:
            batch = BatchMetadata(row.last_sequence, row.last_sequence, row.offset, row.offset, row.timestamp_ms)
            if row.batch_only:
                # The cleaner removed its records, so its transaction has ended: records of open ones are never removed.
                states.add_data(row.producer_id, row.producer_epoch, batch, False)
            else:
                states.add_data(row.producer_id, row.producer_epoch, batch, row.transactional)
        elif row.batch_only:
            states.add_marker(row.producer_id, row.producer_epoch, row.offset, row.timestamp_ms, -1, True)
        else:
            marker = marker_of(row)
            if marker is not None:
                commit, coordinator_epoch = marker
                states.add_marker(
                    row.producer_id, row.producer_epoch, row.offset, row.timestamp_ms, coordinator_epoch, commit
                )
        states.committed(row.offset + 1)

    def entries(self) -> list[ProducerEntry]:
        """Returns every producer, by id."""
        return [entry for _, entry in sorted(self.states.entries.items())]

    def first_unstable_offset(self) -> int | None:
        """Returns the start of the earliest open transaction; None if no transaction is open."""
        return self.states.first_unstable_offset()


def marker_of(row: EventRow) -> tuple[bool, int] | None:
    """Returns a pair for a marker: True for commit, and the coordinator epoch.

    Returns None for other control records.
    """
    key, value = row.key, row.value
    if key is None or len(key) < 4 or int.from_bytes(key[2:4], "big") not in END_MARKERS:
        return None
    epoch = -1 if value is None or len(value) < MARKER_BYTES else int.from_bytes(value[2:6], "big", signed=True)
    return key[2:4] == b"\x00\x01", epoch
