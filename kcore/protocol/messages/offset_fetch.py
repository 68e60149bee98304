"""OffsetFetch (API key 9): reading committed offsets."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    field,
)


class OffsetFetchRequestTopic(Struct):
    """One entry of `topics` of OffsetFetchRequest."""

    name: String = ""
    partition_indexes: Array[Int32] = ()


class OffsetFetchRequestTopics(Struct):
    """One entry of `topics` of OffsetFetchRequestGroup."""

    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: Array[Int32] = ()


class OffsetFetchRequestGroup(Struct):
    """One entry of `groups` of OffsetFetchRequest."""

    group_id: String = ""
    member_id: NullableString = field("9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: Array[OffsetFetchRequestTopics] | None = ()


class OffsetFetchRequest(Request["OffsetFetchResponse"], api_key=9, versions="1-10", flexible="6+"):
    """Partitions of one group up to v7, of many groups from v8 on (KIP-709). v7 can require stable offsets (KIP-447),
    v9 adds member epochs (KIP-848).
    """

    group_id: String = field("0-7", default="")
    topics: Array[OffsetFetchRequestTopic] | None = field("0-7", default=(), nullable="2-7")
    groups: Array[OffsetFetchRequestGroup] = field("8+", default=())
    require_stable: Bool = field("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    """One entry of `partitions` of OffsetFetchResponseTopic."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: NullableString = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    """One entry of `topics` of OffsetFetchResponse."""

    name: String = ""
    partitions: Array[OffsetFetchResponsePartition] = ()


class OffsetFetchResponsePartitions(Struct):
    """One entry of `partitions` of OffsetFetchResponseTopics."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: NullableString = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    """One entry of `topics` of OffsetFetchResponseGroup."""

    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetFetchResponsePartitions] = ()


class OffsetFetchResponseGroup(Struct):
    """One entry of `groups` of OffsetFetchResponse."""

    group_id: String = ""
    topics: Array[OffsetFetchResponseTopics] = ()
    error_code: Int16 = 0


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    """The committed offset of each partition; from v8, grouped by consumer group."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: Array[OffsetFetchResponseTopic] = field("0-7", default=())
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: Array[OffsetFetchResponseGroup] = field("8+", default=())
