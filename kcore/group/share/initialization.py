"""Initialization of share partitions: the group requests state from the share coordinator, and records the result.

A heartbeat adds the missing partitions to the initializing list (a record of type 15). The replay of this record queues
a request to the share coordinator. The heartbeat does not wait for the response. After a successful response, the group
moves the partitions to the initialized list. After an error, the group removes them from the initializing list, so that
the next heartbeat tries again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from kcore.group.share import records as share_records
from kcore.group.share.group import NEVER_MS, ShareGroup
from kcore.group.share.partitions import StateTopic, StateTopics
from kcore.group.side_effects import LiveValue
from kcore.printable import counted
from kcore.process_logging import limited_logger
from kcore.protocol.error_codes import code_name
from kcore.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from kcore.runtime.machine import Outcome, Record
from kcore.share.persister import when_complete

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard

logger = limited_logger(__name__)

FEW_TOPICS: Final = 100
"""Maximum number of topics for which the result of the initialization is recorded without a separate slice."""
BY_RESET_POLICY: Final = -1
"""The start offset in a request if the first fetch must determine the offset, with `share.auto.offset.reset`."""


def start(group: ShareGroup, names: Iterable[str], state_epoch: int, records: list[Record]) -> int:
    """Starts the initialization of the subscribed partitions that have no state yet.

    Args:
        group: the group before the decision.
        names: the subscribed topics after the decision.
        state_epoch: the group epoch after the decision, which becomes the epoch of the states.
        records: the decision's records, to which a record of type 15 is added.

    Returns:
        The monotonic time in ms at which a heartbeat must repeat unfinished initializations; `NEVER_MS` if there are
        none.
    """
    state, shard = group.state_partitions, group.shard
    initialized_topics, initializing_topics = state.initialized, state.initializing
    retry_at_ms = group.initializing_since_ms + shard.config.group_share_initialize_retry_interval_ms
    is_recent = shard.now.now_ms < retry_at_ms
    wait_ms = NEVER_MS
    missing: dict[bytes, StateTopic] = {}
    for topic in group.existing_topics(names):
        if topic.topic_id not in initialized_topics and topic.topic_id not in initializing_topics:
            missing[topic.topic_id] = StateTopic(topic.name, _all_of(topic.partitions))
            continue
        initialized = state.initialized_of(topic.topic_id)
        if len(initialized) == topic.partitions:
            continue
        initializing = state.initializing_of(topic.topic_id)
        if (
            is_recent
            and len(initialized) + len(initializing) == topic.partitions
            and initialized.isdisjoint(initializing)
        ):
            # the other partitions are being initialized; without this check each join would visit every partition
            wait_ms = retry_at_ms
            continue
        rest = _all_of(topic.partitions) - initialized
        if is_recent and not initializing.isdisjoint(rest):
            wait_ms = retry_at_ms
            rest -= initializing
        if rest:
            missing[topic.topic_id] = StateTopic(topic.name, rest)
    if missing:
        record = share_records.state_partitions(group.group_id, state.begin(missing))
        assert record.value is not None
        request = partial(_queue, group.group_id, missing, state_epoch)
        records.append(Record(record.key, LiveValue(record.value, request)))
    return wait_ms


@lru_cache(maxsize=64)
def _all_of(partitions: int) -> frozenset[int]:
    """Returns the numbers of all partitions of a topic.

    The result is cached, because most topics of a group have the same number of partitions.
    """
    return frozenset(range(partitions))


def initialize_request(
    group_id: str, topics: StateTopics, state_epoch: int, start_offsets: dict[tuple[bytes, int], int] | None = None
) -> InitializeShareGroupStateRequest:
    """Returns the request that initializes share partitions.

    Args:
        group_id: the share group.
        topics: the partitions to initialize, by topic id.
        state_epoch: the epoch of this initialization. Later requests with a lower state epoch are fenced.
        start_offsets: the start offsets by (topic id, partition); None: the reset policy determines them.
    """
    return InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    PartitionData(
                        partition=index,
                        state_epoch=state_epoch,
                        start_offset=BY_RESET_POLICY if start_offsets is None else start_offsets[topic_id, index],
                    )
                    for index in sorted(topic.partitions)
                ],
            )
            for topic_id, topic in topics.items()
        ],
    )


def _queue(group_id: str, topics: StateTopics, state_epoch: int, shard: GroupShard) -> None:
    shard.context.in_slices(_request(shard, group_id, topics, state_epoch))


def _request(shard: GroupShard, group_id: str, topics: StateTopics, state_epoch: int) -> Iterator[Outcome | None]:
    """Sends the initialization request to the share coordinator, in a slice after the decision.

    The persister repeats a failed request only until the shard is reloaded. A reload may lose the record that caused
    the request, and the group may reach the same epoch again. The state epoch would then not fence a late repetition.
    The repetition would reset a state that a newer request has initialized, and the state's acknowledgements would be
    lost.
    """
    persister = shard.share.persister
    if persister is not None:
        owner = shard.context.shard
        request = initialize_request(group_id, topics, state_epoch)
        result = persister.initialize(request, lambda: owner.machine is shard)
        when_complete(result, partial(_completed, shard, group_id, topics))
    yield None


def _completed(shard: GroupShard, group_id: str, topics: StateTopics, response: Any) -> None:
    """Records the share coordinator's result, unless the shard was reloaded after the request.

    After a reload, a heartbeat repeats the request. If there are many topics, a separate slice writes the record.
    """
    owner = shard.context.shard
    if owner.machine is shard:
        if len(topics) > FEW_TOPICS:
            shard.context.in_slices(_finish_later(shard, group_id, topics, response))
        else:
            owner.perform(partial(_finish, shard, group_id, topics, response))


def _finish_later(shard: GroupShard, group_id: str, topics: StateTopics, response: Any) -> Iterator[Outcome | None]:
    yield _finish(shard, group_id, topics, response)


def _finish(shard: GroupShard, group_id: str, topics: StateTopics, response: Any) -> Outcome | None:
    errors = {result.error_code for topic in response.results for result in topic.partitions} - {0}
    group = shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return None
    before = group.state_partitions
    if errors:
        logger.warning(
            "group %s: the share coordinator failed to initialize share partitions of %s (%s); the next "
            "heartbeat tries again; if this repeats, look for errors in the log of the share coordinator's node",
            group_id,
            counted(len(topics), "topics"),
            ", ".join(sorted(code_name(error) for error in errors)),
        )
    after = before.cancel(topics) if errors else before.confirm(topics)
    return None if after == before else Outcome([share_records.state_partitions(group_id, after)])
