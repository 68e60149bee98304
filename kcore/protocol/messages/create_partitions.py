"""CreatePartitions (API key 37): adding partitions (KIP-195)."""

from kcore.protocol.schema import Array, Bool, Int16, Int32, Message, NullableString, Request, String, Struct


class CreatePartitionsAssignment(Struct):
    """One entry of `assignments` of CreatePartitionsTopic."""

    broker_ids: Array[Int32] = ()


class CreatePartitionsTopic(Struct):
    """One entry of `topics` of CreatePartitionsRequest."""

    name: String = ""
    count: Int32 = 0
    assignments: Array[CreatePartitionsAssignment] | None = ()


class CreatePartitionsRequest(Request["CreatePartitionsResponse"], api_key=37, versions="0-3", flexible="2+"):
    """New partition counts."""

    topics: Array[CreatePartitionsTopic] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    """One entry of `results` of CreatePartitionsResponse."""

    name: String = ""
    error_code: Int16 = 0
    error_message: NullableString = None


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    """One result per topic."""

    throttle_time_ms: Int32 = 0
    results: Array[CreatePartitionsTopicResult] = ()
