"""The work of AlterShareGroupOffsets and DeleteShareGroupOffsets requests.

Each request has two decisions: before and after an operation of the share coordinator. A decision runs as a whole.
Generators do the work before, between and after the decisions, which depends on the number of topics and partitions.
`in_slices` runs these generators in steps. They yield the cost of each step in microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.group.epoch_group import FIRST_EPOCH
from kcore.group.group import GroupType, not_found
from kcore.group.share import records as share_records
from kcore.group.share.group import ShareGroup
from kcore.group.share.partitions import NOTHING, StateTopic
from kcore.group.share.slicing import FEW_PARTITIONS, NAME_COST_US, ROW_COST_US
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
from kcore.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
)
from kcore.protocol.messages.delete_share_group_state import PartitionData as DeletedState
from kcore.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from kcore.protocol.messages.initialize_share_group_state import PartitionData as InitialState
from kcore.protocol.schema import ZERO_UUID
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence

    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestTopic
    from kcore.protocol.messages.delete_share_group_state import DeleteShareGroupStateResponse
    from kcore.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateResponse,
        PartitionResult,
    )
    from kcore.runtime.topics import TopicImage, TopicInfo

MAX_NAMES: Final = 100_000
"""Maximum number of groups, topics and partitions in a request about the start offsets of share groups.

It limits the memory of the response.
"""

TOO_MANY: Final = f"a request may name at most {MAX_NAMES} groups, topics and partitions"
"""The error message for a request with more than `MAX_NAMES` elements.

The attribute `differs` of the APIs, which lists differences from Kafka, also contains this text.
"""

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class BeginAlterInput(NamedTuple):
    """The input of the first decision of AlterShareGroupOffsets.

    Attributes:
        group_id: the group whose start offsets are altered.
        topics: the existing partitions by topic id; a topic may have no partitions.
        offsets: the start offsets by (topic id, partition).
        responses: the topics of the response. Partitions without an error still need the share coordinator's result.
    """

    group_id: str
    topics: dict[bytes, StateTopic]
    offsets: dict[tuple[bytes, int], int]
    responses: list[AlterShareGroupOffsetsResponseTopic]


class BeginAlterResult(NamedTuple):
    """The result of the first decision of AlterShareGroupOffsets.

    Attributes:
        alteration: the input of the decision.
        topics: the partitions to initialize.
        state_epoch: the state epoch with which these partitions are initialized.
        result: the share coordinator's response; None before it has arrived.
    """

    alteration: BeginAlterInput
    topics: dict[bytes, StateTopic]
    state_epoch: int
    result: InitializeShareGroupStateResponse | None = None


class FinishAlterInput(NamedTuple):
    """The input of the second decision of AlterShareGroupOffsets.

    Attributes:
        group_id: the group whose start offsets are altered.
        topics: the partitions that the share coordinator has initialized.
        response: the response to the client.
    """

    group_id: str
    topics: dict[bytes, StateTopic]
    response: AlterShareGroupOffsetsResponse


class BeginDeleteInput(NamedTuple):
    """The input of the first decision of DeleteShareGroupOffsets.

    Attributes:
        group_id: the group whose states are deleted.
        topics: the requested names, each with its topic, or None if the topic does not exist.
    """

    group_id: str
    topics: list[tuple[str, TopicInfo | None]]


class BeginDeleteResult(NamedTuple):
    """The result of the first decision of DeleteShareGroupOffsets.

    Attributes:
        deletion: the input of the decision.
        partitions: for each topic id, the partitions whose states must be deleted.
        responses: the topics of the response; empty until `delete_in_steps` fills it. Topics without an error still
            need the share coordinator's result.
        result: the share coordinator's response; None before it has arrived.
    """

    deletion: BeginDeleteInput
    partitions: dict[bytes, Collection[int]]
    responses: list[DeleteShareGroupOffsetsResponseTopic]
    result: DeleteShareGroupStateResponse | None = None


class FinishDeleteInput(NamedTuple):
    """The input of the second decision of DeleteShareGroupOffsets.

    Attributes:
        group_id: the group whose states are deleted.
        topic_ids: the topics whose states the share coordinator has deleted.
        response: the response to the client.
    """

    group_id: str
    topic_ids: list[bytes]
    response: DeleteShareGroupOffsetsResponse


def _empty_group(shard: GroupShard, group_id: str) -> ShareGroup | None:
    """Returns the share group with this id if it has no members; None if no group has this id.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND for a group of another type; NON_EMPTY_GROUP.
    """
    group = shard.groups.get(group_id)
    if group is None:
        return None
    if not isinstance(group, ShareGroup):
        raise not_found(group_id, group, GroupType.SHARE)
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has {len(group.members)} members")
    return group


# ---- alter


def look_up_altered(
    topics: TopicImage,
    group_id: str,
    requested_topics: Sequence[AlterShareGroupOffsetsRequestTopic],
) -> Generator[int, None, BeginAlterInput]:
    """Looks up the topics and partitions of a request, in steps.

    Returns the `BeginAlterInput` of the existing partitions. Its `responses` have an error for the other partitions.
    """
    found = BeginAlterInput(group_id, {}, {}, [])
    indexes: dict[bytes, set[int]] = {}  # a request may name a topic many times
    names: dict[bytes, str] = {}
    for requested in requested_topics:
        topic = topics.by_name(requested.topic_name)
        yield NAME_COST_US
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        count = 0 if topic is None else topic.partitions
        valid = {
            partition.partition_index: partition.start_offset
            for partition in requested.partitions
            if 0 <= partition.partition_index < count
        }
        if topic is not None:
            names[topic_id] = topic.name
            indexes.setdefault(topic_id, set()).update(valid)
            found.offsets.update(((topic_id, index), offset) for index, offset in valid.items())
        rows: list[AlterShareGroupOffsetsResponsePartition] = []
        for first in range(0, len(requested.partitions), FEW_PARTITIONS):
            some = requested.partitions[first : first + FEW_PARTITIONS]
            rows += [_altered(partition.partition_index, partition.partition_index in valid) for partition in some]
            yield ROW_COST_US * len(some)
        found.responses.append(
            AlterShareGroupOffsetsResponseTopic(topic_name=requested.topic_name, topic_id=topic_id, partitions=rows)
        )
    for topic_id, partitions in indexes.items():
        found.topics[topic_id] = StateTopic(names[topic_id], frozenset(partitions))
    return found


def _altered(index: int, is_known: bool) -> AlterShareGroupOffsetsResponsePartition:
    code = ErrorCode.NONE if is_known else _UNKNOWN
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=index, error_code=code, error_message=code.message if code else None
    )


def begin_alter(shard: GroupShard, alteration: BeginAlterInput) -> Outcome:
    """Decides the first step of AlterShareGroupOffsets: adds the partitions to the initializing list.

    Creates the group if it does not exist and the request names an existing topic. Leaves out topics that were deleted
    after their look-up.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND for a group of another type; NON_EMPTY_GROUP.
    """
    group_id = alteration.group_id
    group = _empty_group(shard, group_id)
    by_id = shard.topics.by_id
    topics = {topic_id: topic for topic_id, topic in alteration.topics.items() if by_id(topic_id) is not None}
    state_epoch = FIRST_EPOCH if group is None else group.group_epoch
    state = NOTHING if group is None else group.state_partitions
    named = {topic_id: topic for topic_id, topic in topics.items() if topic.partitions}
    records = [share_records.state_partitions(group_id, state.begin(topics))] if topics else []
    return Outcome(records, BeginAlterResult(alteration, named, state_epoch))


def initialize_in_steps(altered: BeginAlterResult) -> Generator[int, None, InitializeShareGroupStateRequest]:
    """Builds the InitializeShareGroupState request to the share coordinator, in steps."""
    alteration = altered.alteration
    whole = InitializeShareGroupStateRequest(group_id=alteration.group_id, topics=[])
    for topic_id, topic in altered.topics.items():
        rows: list[InitialState] = []
        indexes = sorted(topic.partitions)
        for first in range(0, len(indexes), FEW_PARTITIONS):
            some = indexes[first : first + FEW_PARTITIONS]
            rows += [
                InitialState(
                    partition=index, state_epoch=altered.state_epoch, start_offset=alteration.offsets[topic_id, index]
                )
                for index in some
            ]
            yield ROW_COST_US * len(some)
        whole.topics.append(InitializeStateData(topic_id=topic_id, partitions=rows))  # type: ignore[attr-defined]
    return whole


def read_initialized(altered: BeginAlterResult) -> Generator[int, None, FinishAlterInput]:
    """Returns the `FinishAlterInput`, whose response has the share coordinator's results. Runs in steps."""
    assert altered.result is not None
    alteration = altered.alteration
    results: dict[tuple[bytes, int], PartitionResult] = {}
    done: dict[bytes, StateTopic] = {}
    for topic in altered.result.results:
        results.update(((topic.topic_id, result.partition), result) for result in topic.partitions)
        succeeded = frozenset(result.partition for result in topic.partitions if not result.error_code)
        if succeeded:
            done[topic.topic_id] = StateTopic(altered.topics[topic.topic_id].name, succeeded)
        yield ROW_COST_US * len(topic.partitions)
    for response in alteration.responses:
        for first in range(0, len(response.partitions), FEW_PARTITIONS):
            some = response.partitions[first : first + FEW_PARTITIONS]
            for partition in some:
                result = results.get((response.topic_id, partition.partition_index))
                if result is not None:
                    partition.error_code, partition.error_message = result.error_code, result.error_message
                elif not partition.error_code:  # the topic was deleted
                    partition.error_code, partition.error_message = _UNKNOWN, _UNKNOWN.message
            yield ROW_COST_US * len(some)
    return FinishAlterInput(alteration.group_id, done, AlterShareGroupOffsetsResponse(responses=alteration.responses))


def finish_alter(shard: GroupShard, initialized: FinishAlterInput) -> Outcome | AlterShareGroupOffsetsResponse:
    """Decides the second step of AlterShareGroupOffsets: records the initialized partitions."""
    group = shard.groups.get(initialized.group_id)
    if not isinstance(group, ShareGroup):
        return initialized.response
    after = group.state_partitions.confirm(initialized.topics)
    if after == group.state_partitions:
        return initialized.response
    return Outcome([share_records.state_partitions(initialized.group_id, after)], initialized.response)


# ---- delete


def begin_delete(shard: GroupShard, deletion: BeginDeleteInput) -> Outcome:
    """Decides the first step of DeleteShareGroupOffsets: initialized topics move to the deleting list.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP.
    """
    group = _empty_group(shard, deletion.group_id)
    if group is None:
        raise not_found(deletion.group_id, None, GroupType.SHARE)
    state = group.state_partitions
    partitions: dict[bytes, Collection[int]] = {}
    for _, topic in deletion.topics:
        if topic is None:
            continue
        if topic.topic_id in state.initialized:
            partitions[topic.topic_id] = state.initialized_of(topic.topic_id)
        elif topic.topic_id in state.deleting:
            partitions[topic.topic_id] = range(topic.partitions)
    record = share_records.state_partitions(deletion.group_id, state.delete(partitions))
    return Outcome([record], BeginDeleteResult(deletion, partitions, []))


def delete_in_steps(deleting: BeginDeleteResult) -> Generator[int, None, DeleteShareGroupStateRequest]:
    """Builds the DeleteShareGroupState request to the share coordinator, in steps.

    Also adds all topics to `deleting.responses`, with an error for each topic that has no state to delete.
    """
    whole = DeleteShareGroupStateRequest(group_id=deleting.deletion.group_id, topics=[])
    for name, topic in deleting.deletion.topics:
        if topic is None:
            deleting.responses.append(_refused(name, "the topic does not exist"))
        elif topic.topic_id not in deleting.partitions:
            deleting.responses.append(_refused(name, "the group has no offsets of the topic"))
        else:
            deleting.responses.append(DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic.topic_id))
        yield ROW_COST_US
    for topic_id, partitions in deleting.partitions.items():
        rows: list[DeletedState] = []
        indexes = sorted(partitions)
        for first in range(0, len(indexes), FEW_PARTITIONS):
            some = indexes[first : first + FEW_PARTITIONS]
            rows += [DeletedState(partition=index) for index in some]
            yield ROW_COST_US * len(some)
        whole.topics.append(DeleteStateData(topic_id=topic_id, partitions=rows))  # type: ignore[attr-defined]
    return whole


def _refused(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=_UNKNOWN, error_message=message)


def read_deleted(deleting: BeginDeleteResult) -> Generator[int, None, FinishDeleteInput]:
    """Returns the `FinishDeleteInput`, whose response has the share coordinator's results. Runs in steps."""
    assert deleting.result is not None
    failed: dict[bytes, tuple[int, str | None]] = {}
    for topic in deleting.result.results:
        for result in topic.partitions:
            if result.error_code:
                failed.setdefault(topic.topic_id, (result.error_code, result.error_message))
        yield ROW_COST_US * len(topic.partitions)
    for response in deleting.responses:
        if response.topic_id in failed:
            response.error_code, response.error_message = failed[response.topic_id]
        yield ROW_COST_US
    done = [topic_id for topic_id in deleting.partitions if topic_id not in failed]
    return FinishDeleteInput(
        deleting.deletion.group_id, done, DeleteShareGroupOffsetsResponse(responses=deleting.responses)
    )


def finish_delete(shard: GroupShard, deleted: FinishDeleteInput) -> Outcome | DeleteShareGroupOffsetsResponse:
    """Decides the second step of DeleteShareGroupOffsets: removes topics with deleted states from the deleting list."""
    group = shard.groups.get(deleted.group_id)
    if not isinstance(group, ShareGroup):
        return deleted.response
    after = group.state_partitions.deleted(deleted.topic_ids)
    if after == group.state_partitions:
        return deleted.response
    return Outcome([share_records.state_partitions(deleted.group_id, after)], deleted.response)
