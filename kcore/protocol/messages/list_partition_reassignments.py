"""ListPartitionReassignments (API key 46): replicas that are moving (KIP-455)."""

from kcore.protocol.schema import Array, Int16, Int32, Message, NullableString, Request, String, Struct


class ListPartitionReassignmentsTopics(Struct):
    """One entry of `topics` of ListPartitionReassignmentsRequest."""

    name: String = ""
    partition_indexes: Array[Int32] = ()


class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"], api_key=46, versions="0", flexible="0+"
):
    """The partitions whose reassignments are listed, null for all."""

    timeout_ms: Int32 = 60000
    topics: Array[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    """One entry of `partitions` of OngoingTopicReassignment."""

    partition_index: Int32 = 0
    replicas: Array[Int32] = ()
    adding_replicas: Array[Int32] = ()
    removing_replicas: Array[Int32] = ()


class OngoingTopicReassignment(Struct):
    """One entry of `topics` of ListPartitionReassignmentsResponse."""

    name: String = ""
    partitions: Array[OngoingPartitionReassignment] = ()


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    """The partitions that are being reassigned, with their current, added and removed replicas."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    topics: Array[OngoingTopicReassignment] = ()
