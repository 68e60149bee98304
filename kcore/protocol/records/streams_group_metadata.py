"""Records of `__consumer_offsets`, type 17: the group epoch of a streams group (KIP-1071)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, Int32, Int64, String, Struct, field


class LastAssignmentConfig(Struct):
    """One entry of `last_assignment_configs` of StreamsGroupMetadataValue."""

    key: String = ""
    value: String = ""


class StreamsGroupMetadataValue(RecordValue, versions="0", flexible="0+"):
    """The group epoch, the metadata hash and the settings of the last assignment."""

    epoch: Int32 = 0
    metadata_hash: Int64 = 0
    validated_topology_epoch: Int32 = field(default=-1, tag=0)
    last_assignment_configs: Array[LastAssignmentConfig] | None = field(default=(), tag=1)


class StreamsGroupMetadataKey(RecordKey, topic=CONSUMER_OFFSETS, record_type=17, value=StreamsGroupMetadataValue):
    """The key: a group."""

    group_id: String = ""
