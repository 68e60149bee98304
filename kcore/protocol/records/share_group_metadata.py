"""Records of `__consumer_offsets`, type 11: the group epoch of a share group (KIP-932)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Int32, Int64, String


class ShareGroupMetadataValue(RecordValue, versions="0", flexible="0+"):
    """The group epoch and the metadata hash."""

    epoch: Int32 = 0
    metadata_hash: Int64 = 0


class ShareGroupMetadataKey(RecordKey, topic=CONSUMER_OFFSETS, record_type=11, value=ShareGroupMetadataValue):
    """The key: a group."""

    group_id: String = ""
