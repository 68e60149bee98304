"""The start offsets of share groups, which tests set before a worker joins."""

from __future__ import annotations

import kcore
from kcore.errors import CoordinatorNotAvailableError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from tests.kit import wait_until

TEMPORARY = {
    0,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Error codes, including success, that a coordinator may return shortly after its start or before it knows a new topic.
"""


def set_start_offset(node: kcore.Node, group_id: str, topic: str, offset: int) -> None:
    """Sets the start offset of partition 0, as soon as Apache Kafka's coordinator has started and knows the topic."""
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    row = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])
    request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=[row])

    def accepted() -> bool:
        try:
            response = node.send(request)
        except CoordinatorNotAvailableError:
            return False
        codes = {each.error_code for listed in response.responses for each in listed.partitions}
        assert codes | {response.error_code} <= TEMPORARY, response
        return codes == {0}

    wait_until(accepted, "the new start offset")
