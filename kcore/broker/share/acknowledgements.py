"""The checks of acknowledgement batches that do not depend on the state of the share partition (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

FIRST_VERSION_WITH_RENEW: Final = 2
REJECT: Final = 3
RENEW: Final = 4


class AcknowledgementBatch(Protocol):
    """The acknowledgement of a range of offsets, in ShareFetch or ShareAcknowledge."""

    @property
    def first_offset(self) -> int:
        """The first offset."""
        ...

    @property
    def last_offset(self) -> int:
        """The last offset."""
        ...

    @property
    def acknowledge_types(self) -> Sequence[int]:
        """One type for all offsets, or one for each."""
        ...


def valid(batches: Sequence[AcknowledgementBatch], version: int, renews: bool) -> bool:
    """Returns True if the batches of a partition are well-formed and in order.

    Args:
        batches: the batches.
        version: the version of the request; renewals are new in version 2 (KIP-1222).
        renews: the request is marked to renew locks.
    """
    highest = RENEW if version >= FIRST_VERSION_WITH_RENEW else REJECT
    previous = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        count = len(types)
        if first > last or first < previous or not count or (count > 1 and count != last - first + 1):
            return False
        if min(types) < 0 or max(types) > highest or (RENEW in types and not renews):
            return False
        previous = last
    return True
