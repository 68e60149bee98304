"""The error codes of OffsetCommit, as the member handles them."""

from __future__ import annotations

from collections.abc import Mapping

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.topic_partition import TopicPartition

COMMIT_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the member repeats the commit."""
MEMBERSHIP_ERRORS = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors of a member that is not, or not in this epoch, in the group."""


def partition_error(codes: Mapping[TopicPartition, int]) -> Exception:
    """Returns the error of a commit from the error codes of its partitions, of which at least one is not 0."""
    from kcore.errors import PartitionErrors, raise_partition_errors  # noqa: PLC0415 - only after a failure

    try:
        raise_partition_errors("commit", codes, len(codes))
    except (KafkaError, PartitionErrors) as error:
        return error
    raise AssertionError("a partition has an error code")
