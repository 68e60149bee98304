from collections.abc import Iterable
from typing import Any

class DeliveryCounters:
    """The compiled base of `ShareCounters`, which documents the attributes.

    It contains the counters that change with every request.
    """

    deliveries: int
    redeliveries: int
    @property
    def acknowledgements(self) -> list[int]:
        """Returns the number of acknowledged records of each acknowledgement type."""

    def delivered(self, ranges: list[tuple[int, int, int]]) -> None:
        """Adds the records of acquired ranges to the counters.

        Args:
            ranges: tuples (first offset, last offset, delivery count).
        """

def valid(batches: Iterable[Any], version: int, renews: bool) -> bool:
    """Returns True if the acknowledgement batches of a partition are well-formed and in order.

    Args:
        batches: the acknowledgement batches of the partition.
        version: the version of the request. Only versions from 2 on can renew locks (KIP-1222).
        renews: True if the request's field `is_renew_ack` is set.
    """

def count_types(batches: Iterable[Any], totals: list[int]) -> None:
    """Adds the number of acknowledged offsets of each acknowledgement type to `totals`.

    Args:
        batches: the acknowledgement batches.
        totals: a number for each acknowledgement type, by its code.
    """
