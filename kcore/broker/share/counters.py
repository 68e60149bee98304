"""Counters of the node's share groups, for metrics (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore_ext.broker.share.acknowledgements import DeliveryCounters, count_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kcore.broker.share.acknowledgements import AcknowledgementBatch

ARCHIVED_STATE = 4


class ShareCounters(DeliveryCounters):
    """The totals since the start of the node.

    Attributes:
        deliveries: acquired records.
        redeliveries: acquired records that were delivered before.
        acknowledgements: acknowledged records by type: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
        expired_locks: records whose lock has expired.
        archived_by_expiry: records that were archived because their lock has expired after their last delivery.
    """

    __slots__ = ("archived_by_expiry", "expired_locks")

    def __init__(self) -> None:
        super().__init__()
        self.expired_locks = 0
        self.archived_by_expiry = 0

    def acknowledged(self, batches: Sequence[AcknowledgementBatch]) -> None:
        """Counts accepted acknowledgement batches."""
        count_types(batches, self.acknowledgements)

    def expired(self, batches: Iterable[tuple[int, int, int, int]]) -> None:
        """Counts the records whose lock has expired.

        Args:
            batches: the new states of these records, as `StateBatch`.
        """
        for first, last, state, _ in batches:
            self.expired_locks += last - first + 1
            if state == ARCHIVED_STATE:
                self.archived_by_expiry += last - first + 1
