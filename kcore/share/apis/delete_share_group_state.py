"""DeleteShareGroupState (key 86), v0: deletes the state of share partitions (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateData,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)
from kcore.runtime.machine import Outcome
from kcore.share.apis.base import ShareStateApi
from kcore.share.state import tombstone

if TYPE_CHECKING:
    from kcore.share.shard import ShareShard
    from kcore.share.state import SharePartitionKey


class DeleteShareGroupStateApi(ShareStateApi[DeleteShareGroupStateRequest, DeleteShareGroupStateResponse]):
    """Handler of DeleteShareGroupState requests."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DELETE_SHARE_GROUP_STATE
    request_type: ClassVar[type] = DeleteShareGroupStateRequest
    response_type: ClassVar[type] = DeleteShareGroupStateResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)
    topic_type: ClassVar[type] = DeleteStateData
    topic_result_type: ClassVar[type] = DeleteStateResult
    partition_result_type: ClassVar[type] = PartitionResult

    def decide_partition(self, machine: ShareShard, key: SharePartitionKey, data: PartitionData) -> Any:
        """Writes a tombstone, unless the share partition has no state."""
        if not self.partition_exists(key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        response = self.respond(key)
        return Outcome([tombstone(key)], response) if key in machine.states else response
