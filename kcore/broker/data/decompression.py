"""Bounds the work of checking the compressed batches of one Produce request."""

from __future__ import annotations

from collections.abc import Generator

from kcore.errors import KafkaError
from kcore.protocol import compression
from kcore.protocol.compression import Buffer, OutputTooLargeError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.sliced import step

MAX_BATCH_BYTES = 16 << 20
"""Maximum size of the decompressed records of a batch.

It limits the memory for the records, and the time for which a response waits for decompression and checks.

Batches of clients are far smaller: clients limit a batch by its size before compression (librdkafka, Go) or by its
estimated compressed size (Java). Java's default limit is 16 KiB. A Java producer splits a batch that is refused with
MESSAGE_TOO_LARGE.
"""

MIN_REQUEST_BYTES = 64 << 20
REQUEST_RATIO = 32
"""Maximum ratio of the decompressed size to the compressed size of the batches of a request.

A request may exceed the ratio if the decompressed size is at most `MIN_REQUEST_BYTES`.
"""

BYTES_A_MICROSECOND = 400
"""Approximate speed at which records are decompressed and checked, in bytes per microsecond."""


class DecompressionBudget:
    """The limit on the decompressed size of the batches of one request.

    Args:
        request_bytes: the size of the request's batches.

    Attributes:
        spent_bytes: the decompressed bytes.
    """

    __slots__ = ("_limit_bytes", "spent_bytes")

    def __init__(self, request_bytes: int) -> None:
        self._limit_bytes = max(MIN_REQUEST_BYTES, REQUEST_RATIO * request_bytes)
        self.spent_bytes = 0

    def decompress(self, codec: int, data: Buffer, max_size_bytes: int) -> bytes:
        """Decompresses the records of a batch like `kcore.protocol.compression.decompress`, within the budget.

        Raises:
            CompressionError: the data is invalid.
            KafkaError: MESSAGE_TOO_LARGE if the records exceed a limit.
        """
        records: bytes = step(self.decompress_in_steps(codec, data, max_size_bytes), -1)[1]
        return records

    def decompress_in_steps(self, codec: int, data: Buffer, max_size_bytes: int) -> Generator[int, None, bytes]:
        """Decompresses like `decompress`, in steps; yields the cost of each step in microseconds."""
        limit_bytes = min(max_size_bytes, MAX_BATCH_BYTES, self._limit_bytes - self.spent_bytes)
        if limit_bytes <= 0:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"all batches of a request may have at most {self._limit_bytes} bytes of records when decompressed",
            )
        try:
            records = yield from in_steps(codec, data, limit_bytes)
        except OutputTooLargeError as error:
            self.spent_bytes += limit_bytes
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, f"a batch has more than {limit_bytes} bytes of records when decompressed"
            ) from error
        self.spent_bytes += len(records)
        return records


def in_steps(codec: int, data: Buffer, max_size_bytes: int) -> Generator[int, None, bytes]:
    """Decompresses the records of a batch in steps; yields the cost of each step in microseconds.

    Raises:
        CompressionError: the data is invalid, or its records exceed the limit.
    """
    steps = compression.decompress_in_steps(codec, data, max_size_bytes)
    return (yield from with_costs(steps, BYTES_A_MICROSECOND))


def with_costs(steps: Generator[int, None, bytes], bytes_a_microsecond: int) -> Generator[int, None, bytes]:
    """Runs `steps`, which yield the number of bytes of each step.

    Yields the cost of each step in microseconds, and returns the result of `steps`.
    """
    while True:
        try:
            step_bytes = next(steps)
        except StopIteration as end:
            result: bytes = end.value
            return result
        yield step_bytes // bytes_a_microsecond
