"""Records of `__consumer_offsets`, type 23: the topology of a streams group (KIP-1071)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, Int16, Int32, String, Struct


class TopicConfig(Struct):
    """One entry of `topic_configs` of TopicInfo."""

    key: String = ""
    value: String = ""


class TopicInfo(Struct):
    """One entry of `state_changelog_topics` or `repartition_source_topics` of Subtopology."""

    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: Array[TopicConfig] = ()


class CopartitionGroup(Struct):
    """One entry of `copartition_groups` of Subtopology."""

    source_topics: Array[Int16] = ()
    source_topic_regex: Array[Int16] = ()
    repartition_source_topics: Array[Int16] = ()


class Subtopology(Struct):
    """One entry of `subtopologies` of StreamsGroupTopologyValue."""

    subtopology_id: String = ""
    source_topics: Array[String] = ()
    source_topic_regex: Array[String] = ()
    state_changelog_topics: Array[TopicInfo] = ()
    repartition_sink_topics: Array[String] = ()
    repartition_source_topics: Array[TopicInfo] = ()
    copartition_groups: Array[CopartitionGroup] = ()


class StreamsGroupTopologyValue(RecordValue, versions="0", flexible="0+"):
    """The subtopologies with their topics."""

    epoch: Int32 = 0
    subtopologies: Array[Subtopology] = ()


class StreamsGroupTopologyKey(RecordKey, topic=CONSUMER_OFFSETS, record_type=23, value=StreamsGroupTopologyValue):
    """The key: a group."""

    group_id: String = ""
