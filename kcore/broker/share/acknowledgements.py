"""The common interface of the acknowledgement batches in ShareFetch and ShareAcknowledge requests (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


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
        """The types of the acknowledgement: one type for all offsets, or one for each offset."""
        ...
