"""The settings of a producer."""

from __future__ import annotations

from typing import NamedTuple

from kcore.protocol.compression import CompressionType

ACKS_ALL = -1


class ProducerSettings(NamedTuple):
    """The settings with which a producer makes and sends batches.

    Attributes:
        linger_s: the time for which a batch waits for more records.
        batch_bytes: the size at which a batch is sent at once.
        buffer_bytes: the total size of all batches at which `append` begins to wait.
        compression: the codec with which batches are compressed.
        timeout_s: the time limit of a record, from its batch's creation on.
        acks: -1 for all in-sync replicas; 1 for the leader alone, without protection against repeated records.
        create_topics: True to let the server create missing topics, if its settings allow that.
    """

    linger_s: float
    batch_bytes: int
    buffer_bytes: int
    compression: CompressionType
    timeout_s: float
    acks: int = ACKS_ALL
    create_topics: bool = False

    @property
    def idempotent(self) -> bool:
        """True if batches have sequences, by which brokers recognize repeated batches (KIP-98)."""
        return self.acks == ACKS_ALL
