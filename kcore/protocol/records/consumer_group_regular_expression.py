"""Records of `__consumer_offsets`, type 16: a regular expression in a KIP-848 group, with the topics that match."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, Int64, String


class ConsumerGroupRegularExpressionValue(RecordValue, versions="0", flexible="0+"):
    """The topics whose names match the expression."""

    topics: Array[String] = ()
    version: Int64 = 0
    timestamp: Int64 = 0


class ConsumerGroupRegularExpressionKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=16, value=ConsumerGroupRegularExpressionValue
):
    """The key: a group and a regular expression."""

    group_id: String = ""
    regular_expression: String = ""
