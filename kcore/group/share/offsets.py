"""AlterShareGroupOffsets and DeleteShareGroupOffsets: the decisions before and after the share coordinator's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.group.consumer.heartbeat import not_found
from kcore.group.share import records as share_records
from kcore.group.share.deletion import delete_request, failures
from kcore.group.share.group import FIRST_EPOCH, ShareGroup
from kcore.group.share.initialization import initialize_request
from kcore.group.share.partitions import NOTHING, StateTopic
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kcore.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kcore.protocol.schema import ZERO_UUID
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
    )
    from kcore.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
    from kcore.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from kcore.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )

MAX_NAMES: Final = 100_000
"""Maximum groups, topics and partitions in a request about offsets. Each takes up to 20 µs, in one turn of the loop."""

TOO_MANY: Final = f"a request may name {MAX_NAMES} groups, topics and partitions"
"""The message for longer requests, and the difference from Kafka."""

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Altered(NamedTuple):
    """The result of the first decision of AlterShareGroupOffsets, and the input of its second.

    Attributes:
        group_id: the group.
        topics: the partitions to initialize.
        request: the request to the share coordinator.
        responses: the response as far as it is decided: partitions without an error wait for the share coordinator.
        result: the share coordinator's response; None before.
    """

    group_id: str
    topics: dict[bytes, StateTopic]
    request: InitializeShareGroupStateRequest
    responses: list[AlterShareGroupOffsetsResponseTopic]
    result: InitializeShareGroupStateResponse | None = None


class Deleted(NamedTuple):
    """The result of the first decision of DeleteShareGroupOffsets, and the input of its second.

    Attributes:
        group_id: the group.
        request: the request to the share coordinator.
        responses: the response as far as it is decided: topics without an error wait for the share coordinator.
        result: the share coordinator's response; None before.
    """

    group_id: str
    request: DeleteShareGroupStateRequest
    responses: list[DeleteShareGroupOffsetsResponseTopic]
    result: DeleteShareGroupStateResponse | None = None


def _empty_group(shard: GroupShard, group_id: str) -> ShareGroup | None:
    """Returns the share group, which must have no members; None if there is no group.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND for a group of another type; NON_EMPTY_GROUP.
    """
    group = shard.groups.get(group_id)
    if group is None:
        return None
    if not isinstance(group, ShareGroup):
        raise not_found(group_id)
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has {len(group.members)} members")
    return group


# ---- alter


def begin_alter(shard: GroupShard, request: AlterShareGroupOffsetsRequest) -> Outcome:
    """Decides the first step: the existing partitions become initializing, in a group that may be new.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND for a group of another type; NON_EMPTY_GROUP.
    """
    group_id = request.group_id
    group = _empty_group(shard, group_id)
    names: dict[bytes, str] = {}
    offsets: dict[bytes, dict[int, int]] = {}
    responses = []
    for requested in request.topics:
        topic = shard.topics.by_name(requested.topic_name)
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        count = 0 if topic is None else topic.partitions
        valid = {
            partition.partition_index: partition.start_offset
            for partition in requested.partitions
            if 0 <= partition.partition_index < count
        }
        if topic is not None:
            names[topic_id] = topic.name
            offsets.setdefault(topic_id, {}).update(valid)  # a request may name a topic many times
        partitions = [_altered(partition, valid) for partition in requested.partitions]
        responses.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=requested.topic_name, topic_id=topic_id, partitions=partitions
            )
        )
    state_epoch = FIRST_EPOCH if group is None else group.group_epoch
    state = NOTHING if group is None else group.state_partitions
    topics = {topic_id: StateTopic(names[topic_id], frozenset(starts)) for topic_id, starts in offsets.items()}
    named = {topic_id: topic for topic_id, topic in topics.items() if topic.partitions}
    altered = Altered(group_id, named, initialize_request(group_id, named, state_epoch, offsets), responses)
    return Outcome([share_records.state_partitions(group_id, state.begin(topics))], altered)


def _altered(
    requested: AlterShareGroupOffsetsRequestPartition, valid: dict[int, int]
) -> AlterShareGroupOffsetsResponsePartition:
    code = ErrorCode.NONE if requested.partition_index in valid else _UNKNOWN
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=requested.partition_index, error_code=code, error_message=code.message if code else None
    )


def finish_alter(shard: GroupShard, altered: Altered) -> Outcome | AlterShareGroupOffsetsResponse:
    """Decides the second step: the partitions that the share coordinator initialized are recorded as such."""
    assert altered.result is not None
    results = {
        (topic.topic_id, result.partition): result for topic in altered.result.results for result in topic.partitions
    }
    for topic in altered.responses:
        for partition in topic.partitions:
            result = results.get((topic.topic_id, partition.partition_index))
            if result is not None:
                partition.error_code, partition.error_message = result.error_code, result.error_message
    response = AlterShareGroupOffsetsResponse(responses=altered.responses)
    group = shard.groups.get(altered.group_id)
    if not isinstance(group, ShareGroup):
        return response
    done = {}
    for topic_id, requested in altered.topics.items():
        succeeded = [index for index in requested.partitions if not results[topic_id, index].error_code]
        if succeeded:
            done[topic_id] = StateTopic(requested.name, frozenset(succeeded))
    after = group.state_partitions.confirm(done)
    if after == group.state_partitions:
        return response
    return Outcome([share_records.state_partitions(altered.group_id, after)], response)


# ---- delete


def begin_delete(shard: GroupShard, request: DeleteShareGroupOffsetsRequest) -> Outcome:
    """Decides the first step: initialized topics move to the deleting list.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP.
    """
    group = _empty_group(shard, request.group_id)
    if group is None:
        raise not_found(request.group_id)
    state = group.state_partitions
    partitions: dict[bytes, Sequence[int]] = {}
    responses = []
    for requested in request.topics:
        topic = shard.topics.by_name(requested.topic_name)
        if topic is None:
            responses.append(_refused(requested.topic_name, "there is no such topic"))
            continue
        if topic.topic_id in partitions:
            pass  # named twice: sorting its partitions each time would take seconds
        elif topic.topic_id in state.initialized:
            partitions[topic.topic_id] = sorted(state.initialized_of(topic.topic_id))
        elif topic.topic_id in state.deleting:
            partitions[topic.topic_id] = range(topic.partitions)
        else:
            responses.append(_refused(requested.topic_name, "the group has no offsets of the topic"))
            continue
        responses.append(DeleteShareGroupOffsetsResponseTopic(topic_name=topic.name, topic_id=topic.topic_id))
    deleted = Deleted(request.group_id, delete_request(request.group_id, partitions), responses)
    return Outcome([share_records.state_partitions(request.group_id, state.delete(partitions))], deleted)


def _refused(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=_UNKNOWN, error_message=message)


def finish_delete(shard: GroupShard, deleted: Deleted) -> Outcome | DeleteShareGroupOffsetsResponse:
    """Decides the second step: topics whose states the share coordinator deleted leave the deleting list."""
    assert deleted.result is not None
    failed = failures(deleted.result)
    for topic in deleted.responses:
        if topic.topic_id in failed:
            topic.error_code, topic.error_message = failed[topic.topic_id]
    response = DeleteShareGroupOffsetsResponse(responses=deleted.responses)
    group = shard.groups.get(deleted.group_id)
    if not isinstance(group, ShareGroup):
        return response
    done = [topic.topic_id for topic in deleted.request.topics if topic.topic_id not in failed]
    after = group.state_partitions.deleted(done)
    if after == group.state_partitions:
        return response
    return Outcome([share_records.state_partitions(deleted.group_id, after)], response)
