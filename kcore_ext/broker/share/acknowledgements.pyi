from collections.abc import Iterable
from typing import Any

class DeliveryCounters:
    """The totals that change with every request; `ShareCounters` documents the attributes."""

    deliveries: int
    redeliveries: int
    @property
    def acknowledgements(self) -> list[int]:
        """Returns the number of acknowledged records of each type."""

    def delivered(self, ranges: list[tuple[int, int, int]]) -> None:
        """Counts acquired ranges: first offset, last offset, delivery count."""

def valid(batches: Iterable[Any], version: int, renews: bool) -> bool:
    """Returns True if the acknowledgement batches of a partition are well-formed and in order.

    Args:
        batches: the batches.
        version: the version of the request; renewals are new in version 2 (KIP-1222).
        renews: True if the request is marked to renew locks.
    """

def count_types(batches: Iterable[Any], totals: list[int]) -> None:
    """Adds the number of acknowledged offsets of each type to `totals`.

    Args:
        batches: the batches.
        totals: a number for each type.
    """
