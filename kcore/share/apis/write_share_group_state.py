"""WriteShareGroupState (key 85), v0-1: stores changes of the delivery state of share partitions (KIP-932).

The leaders of the partitions send this request.

v1 adds the count of completed deliveries (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

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
from kcore.share.batches import MAX_BATCHES, batches_of, combine
from kcore.share.writing import write_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcore.share.batches import Batch
    from kcore.share.shard import ShareShard
    from kcore.share.state import SharePartitionKey
    from kcore_ext.share.states import ShareState

COMPLETE: Final = (2, 4)
"""Delivery states of records whose delivery is complete: 2, acknowledged, and 4, archived."""
MAX_COUNT: Final = 2**31 - 1
"""Maximum number of completed deliveries that a state record can store. The batches of a request may cover more
offsets.
"""


class WriteShareGroupStateApi(ShareStateApi[WriteShareGroupStateRequest, WriteShareGroupStateResponse]):
    """Handler of WriteShareGroupState requests. It compares the epochs of the request, but does not store them."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.WRITE_SHARE_GROUP_STATE
    request_type: ClassVar[type] = WriteShareGroupStateRequest
    response_type: ClassVar[type] = WriteShareGroupStateResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)
    differs: ClassVar[str] = (
        f"A share partition may have {MAX_BATCHES} state batches; kcore refuses a write that would exceed "
        "this limit with INVALID_REQUEST."
    )
    topic_type: ClassVar[type] = WriteStateData
    topic_result_type: ClassVar[type] = WriteStateResult
    partition_result_type: ClassVar[type] = PartitionResult

    def decide_partition(self, machine: ShareShard, key: SharePartitionKey, data: PartitionData) -> Any:
        """Writes an update or a snapshot with the changed batches."""
        state = initialized(machine, key)
        check_leader_epoch(state, data.leader_epoch)
        check_state_epoch(state, data.state_epoch)
        if not self.partition_exists(key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        batches = batches_of(data.state_batches)
        start_offset, complete_count = data.start_offset, data.delivery_complete_count
        if -1 < start_offset < state.start_offset:
            # A leader may repeat a failed write after later writes. The repeated write still changes states, but not
            # the start offset.
            start_offset = state.start_offset
            if complete_count != -1:
                complete_count = _count_complete(combine(state.batches, batches, start_offset))
        complete_count = min(complete_count, MAX_COUNT)
        _check_size(state, batches, start_offset)
        record = write_record(
            machine,
            key,
            state,
            leader_epoch=state.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            batches=batches,
        )
        return Outcome([record], self.respond(key))


def _count_complete(batches: Sequence[Batch]) -> int:
    """Returns the number of acknowledged and archived records."""
    return sum(last - first + 1 for first, last, state, _ in batches if state in COMPLETE)


def _check_size(state: ShareState, batches: list[Batch], start_offset: int) -> None:
    """Refuses a write after which the share partition would have too many state batches.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    if len(state.batches) + 2 * len(batches) <= MAX_BATCHES:  # a batch inside another batch divides it into two
        return
    start_offset = state.start_offset if start_offset == -1 else start_offset
    if len(batches) > MAX_BATCHES or len(combine(state.batches, batches, start_offset)) > MAX_BATCHES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a share partition may have at most {MAX_BATCHES} state batches")
