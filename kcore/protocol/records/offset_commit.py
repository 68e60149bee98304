"""Records of `__consumer_offsets`, type 1: committed offsets."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import ZERO_UUID, Int32, Int64, String, Uuid, field


class OffsetCommitValue(RecordValue, versions="0-4", flexible="4+"):
    """A committed offset. Only v1 has an expiration time. v3 adds the leader epoch (KIP-320), v4 the topic id."""

    offset: Int64 = 0
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", default=ZERO_UUID, tag=0, ignorable=True)


class OffsetCommitKey(RecordKey, topic=CONSUMER_OFFSETS, record_type=1, value=OffsetCommitValue):
    """The key: a group and a partition."""

    group: String = ""
    topic: String = ""
    partition: Int32 = 0
