"""InitializeShareGroupState (key 83), v0: sets the start offset and the state epoch of share partitions (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateData,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)
from kcore.runtime.machine import Outcome
from kcore.share.apis.base import ShareStateApi, check_state_epoch
from kcore.share.state import snapshot_record

if TYPE_CHECKING:
    from kcore.share.shard import ShareShard
    from kcore.share.state import SharePartitionKey


class InitializeShareGroupStateApi(ShareStateApi[InitializeShareGroupStateRequest, InitializeShareGroupStateResponse]):
    """Handler of InitializeShareGroupState requests, which discard any earlier delivery state."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.INITIALIZE_SHARE_GROUP_STATE
    request_type: ClassVar[type] = InitializeShareGroupStateRequest
    response_type: ClassVar[type] = InitializeShareGroupStateResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)
    topic_type: ClassVar[type] = InitializeStateData
    topic_result_type: ClassVar[type] = InitializeStateResult
    partition_result_type: ClassVar[type] = PartitionResult
    needs_partitions: ClassVar[bool] = False

    def decide_partition(self, machine: ShareShard, key: SharePartitionKey, data: PartitionData) -> Any:
        """Writes a snapshot with the requested state epoch and start offset, leader epoch 0, and no state batches."""
        state = machine.states.get(key)
        if state is not None:
            check_state_epoch(state, data.state_epoch)
        if not self.partition_exists(key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        wall_ms = machine.now.wall_ms
        snapshot = snapshot_record(
            key,
            snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
            state_epoch=data.state_epoch,
            leader_epoch=0,
            start_offset=data.start_offset,
            delivery_complete_count=-1 if data.start_offset == -1 else 0,
            batches=(),
            create_timestamp=wall_ms,
            write_timestamp=wall_ms,
        )
        return Outcome([snapshot], self.respond(key))
