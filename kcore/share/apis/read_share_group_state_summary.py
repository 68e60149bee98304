"""ReadShareGroupStateSummary (key 87), v0-1: returns only the start offsets of share partitions (KIP-932).

v1 adds the count of completed deliveries (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryData,
    ReadStateSummaryResult,
)
from kcore.share.apis.base import ShareStateApi

if TYPE_CHECKING:
    from kcore.share.shard import ShareShard
    from kcore.share.state import SharePartitionKey


class ReadShareGroupStateSummaryApi(
    ShareStateApi[ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse]
):
    """Handler of ReadShareGroupStateSummary requests."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    request_type: ClassVar[type] = ReadShareGroupStateSummaryRequest
    response_type: ClassVar[type] = ReadShareGroupStateSummaryResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)
    topic_type: ClassVar[type] = ReadStateSummaryData
    topic_result_type: ClassVar[type] = ReadStateSummaryResult
    partition_result_type: ClassVar[type] = PartitionResult

    def decide_partition(self, machine: ShareShard, key: SharePartitionKey, data: PartitionData) -> Any:
        """Returns the summary; a share partition without state has start offset -1."""
        if not self.partition_exists(key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = machine.states.get(key)
        if state is None:
            return self.respond(key, start_offset=-1, delivery_complete_count=-1)
        return self.respond(
            key,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
