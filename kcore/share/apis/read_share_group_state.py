"""ReadShareGroupState (key 84), v0: returns the delivery state of share partitions to their leader (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
    ReadStateResult,
    StateBatch,
)
from kcore.runtime.machine import Outcome
from kcore.share.apis.base import ShareStateApi, check_leader_epoch, initialized
from kcore.share.writing import write_record

if TYPE_CHECKING:
    from kcore.share.shard import ShareShard
    from kcore.share.state import SharePartitionKey


class ReadShareGroupStateApi(ShareStateApi[ReadShareGroupStateRequest, ReadShareGroupStateResponse]):
    """Handler of ReadShareGroupState requests. It writes a new leader epoch, so that earlier leaders are fenced."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.READ_SHARE_GROUP_STATE
    request_type: ClassVar[type] = ReadShareGroupStateRequest
    response_type: ClassVar[type] = ReadShareGroupStateResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)
    topic_type: ClassVar[type] = ReadStateData
    topic_result_type: ClassVar[type] = ReadStateResult
    partition_result_type: ClassVar[type] = PartitionResult
    small_responses: ClassVar[bool] = False

    def decide_partition(self, machine: ShareShard, key: SharePartitionKey, data: PartitionData) -> Any:
        """Returns the state. Writes the leader epoch of the request if it is above all recorded leader epochs."""
        state = initialized(machine, key)
        check_leader_epoch(state, data.leader_epoch)
        if not self.partition_exists(key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        response = self.respond(
            key,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                StateBatch(first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count)
                for first, last, delivery_state, count in state.batches
            ],
        )
        if data.leader_epoch in (-1, state.highest_leader_epoch):
            return response
        record = write_record(
            machine,
            key,
            state,
            leader_epoch=data.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            batches=[],
        )
        return Outcome([record], response)
