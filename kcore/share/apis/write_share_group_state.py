"""WriteShareGroupState (key 85), v0-1: changes of the delivery state of share partitions, by their leader (KIP-932).

v1 adds the count of completed deliveries (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateData,
    WriteStateResult,
)
from kcore.runtime.machine import Outcome
from kcore.share.apis.base import ShareStateApi, check_leader_epoch, check_state_epoch, initialized
from kcore.share.batches import batches_of
from kcore.share.writing import write_record

if TYPE_CHECKING:
    from kcore.share.shard import ShareShard
    from kcore.share.state import SharePartitionKey


class WriteShareGroupStateApi(ShareStateApi[WriteShareGroupStateRequest, WriteShareGroupStateResponse]):
    """Serves WriteShareGroupState. The epochs of the request are compared, but not stored."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.WRITE_SHARE_GROUP_STATE
    request_type: ClassVar[type] = WriteShareGroupStateRequest
    response_type: ClassVar[type] = WriteShareGroupStateResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)
    topic_type: ClassVar[type] = WriteStateData
    topic_result_type: ClassVar[type] = WriteStateResult
    partition_result_type: ClassVar[type] = PartitionResult

    def decide_partition(self, machine: ShareShard, key: SharePartitionKey, data: PartitionData) -> Any:
        """Writes an update or a snapshot with the changed batches."""
        state = initialized(machine, key)
        check_leader_epoch(state, data.leader_epoch)
        check_state_epoch(state, data.state_epoch)
        if not self.found(key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        record = write_record(
            machine,
            key,
            state,
            leader_epoch=state.leader_epoch,
            start_offset=data.start_offset,
            delivery_complete_count=data.delivery_complete_count,
            batches=batches_of(data.state_batches),
        )
        return Outcome([record], self.respond(key))
