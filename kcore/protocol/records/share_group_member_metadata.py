"""Records of `__consumer_offsets`, type 10: a member's subscription in a share group (KIP-932)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, NullableString, String


class ShareGroupMemberMetadataValue(RecordValue, versions="0", flexible="0+"):
    """The member's subscription."""

    rack_id: NullableString = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Array[String] = ()


class ShareGroupMemberMetadataKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=10, value=ShareGroupMemberMetadataValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
