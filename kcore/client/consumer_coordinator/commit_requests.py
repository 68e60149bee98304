"""The OffsetCommit requests of members, and the errors of their responses."""

from __future__ import annotations

from collections.abc import Mapping

from kcore.client.consumer_coordinator.interface import OffsetAndMetadata
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
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
"""Errors after which a commit is sent again."""
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
"""Errors of a commit with which the coordinator refuses the member, its generation or its epoch."""

OffsetsByPartition = Mapping[TopicPartition, int | OffsetAndMetadata]
"""Type of offsets to commit: partition -> the offset of the next record to read."""


def offset_and_metadata(value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """Returns an offset to commit with its metadata."""
    return OffsetAndMetadata(value) if isinstance(value, int) else value


def commit_request(
    group_id: str, identity: tuple[str, int, str | None], offsets: OffsetsByPartition
) -> OffsetCommitRequest:
    """Builds the request that commits offsets.

    Args:
        group_id: the id of the group.
        identity: member id, generation or member epoch, and instance id.
        offsets: partition -> the offset of the next record to read.
    """
    member_id, epoch, instance_id = identity
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), value in offsets.items():
        given = offset_and_metadata(value)
        row = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=given.offset,
            committed_leader_epoch=-1 if given.leader_epoch is None else given.leader_epoch,
            committed_metadata=given.metadata,
        )
        topics.setdefault(topic, []).append(row)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )


def partition_error(codes: Mapping[TopicPartition, int]) -> Exception:
    """Returns the error of a commit that was refused for some partitions.

    Args:
        codes: the error code of each partition; at least one is not 0.
    """
    from kcore.errors import PartitionErrors, raise_partition_errors  # noqa: PLC0415 - only after a failure

    try:
        raise_partition_errors("commit", codes, len(codes))
    except (KafkaError, PartitionErrors) as error:
        return error
    raise AssertionError("no partition of the response has an error code")
