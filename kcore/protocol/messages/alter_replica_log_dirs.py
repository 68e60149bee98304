"""AlterReplicaLogDirs (API key 34): moving replicas between directories (KIP-113)."""

from kcore.protocol.schema import Array, Int16, Int32, Message, Request, String, Struct


class AlterReplicaLogDirTopic(Struct):
    """One entry of `topics` of AlterReplicaLogDir."""

    name: String = ""
    partitions: Array[Int32] = ()


class AlterReplicaLogDir(Struct):
    """One entry of `dirs` of AlterReplicaLogDirsRequest."""

    path: String = ""
    topics: Array[AlterReplicaLogDirTopic] = ()


class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"], api_key=34, versions="1-2", flexible="2+"):
    """The target directories, with the partitions to move to each."""

    dirs: Array[AlterReplicaLogDir] = ()


class AlterReplicaLogDirPartitionResult(Struct):
    """One entry of `partitions` of AlterReplicaLogDirTopicResult."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    """One entry of `results` of AlterReplicaLogDirsResponse."""

    topic_name: String = ""
    partitions: Array[AlterReplicaLogDirPartitionResult] = ()


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    """One error code per partition."""

    throttle_time_ms: Int32 = 0
    results: Array[AlterReplicaLogDirTopicResult] = ()
