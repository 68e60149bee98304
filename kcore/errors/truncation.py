"""The error of a consumer that has read records which the log of the new leader does not have."""

from __future__ import annotations

from collections.abc import Mapping

from kcore.errors.by_code import OffsetOutOfRangeError
from kcore.protocol.topic_partition import TopicPartition


class LogTruncationError(OffsetOutOfRangeError):
    """The log of a partition was truncated below the consumer's position, and the reset policy is "none" (KIP-320).

    Attributes:
        divergent_offsets: partition -> the first offset at which the leader's log differs from the records that the
            consumer has read; None: the leader has not returned this offset.
    """

    def __init__(
        self, message: str | None = None, divergent_offsets: Mapping[TopicPartition, int | None] | None = None
    ) -> None:
        super().__init__(message)
        self.divergent_offsets = dict(divergent_offsets or {})
        self.partitions = tuple(self.divergent_offsets)
