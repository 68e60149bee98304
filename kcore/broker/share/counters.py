"""Counters of the node's share groups, for metrics (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore_ext.broker.share.acknowledgements import count_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kcore.broker.share.acknowledgements import AcknowledgementBatch

RENEW_TYPE = 4
ARCHIVED_STATE = 4


class ShareCounters:
    """Totals since the start of the node.

    Attributes:
        deliveries: acquired records.
        redeliveries: acquired records that were delivered before.
        acknowledgements: acknowledged records by type: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
        expired_locks: records whose lock has expired.
        archived_by_expiry: those of them that had no delivery left.
    """

    __slots__ = ("acknowledgements", "archived_by_expiry", "deliveries", "expired_locks", "redeliveries")

    def __init__(self) -> None:
        self.deliveries = 0
        self.redeliveries = 0
        self.acknowledgements = [0] * (RENEW_TYPE + 1)
        self.expired_locks = 0
        self.archived_by_expiry = 0

    def delivered(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Counts acquired ranges: first offset, last offset, delivery count."""
        for first, last, count in ranges:
            self.deliveries += last - first + 1
            if count > 1:
                self.redeliveries += last - first + 1

    def acknowledged(self, batches: Sequence[AcknowledgementBatch]) -> None:
        """Counts accepted acknowledgement batches."""
        count_types(batches, self.acknowledgements)

    def expired(self, batches: Iterable[tuple[int, int, int, int]]) -> None:
        """Counts the records of an expired lock, by the state batches that release or archive them."""
        for first, last, state, _ in batches:
            self.expired_locks += last - first + 1
            if state == ARCHIVED_STATE:
                self.archived_by_expiry += last - first + 1
