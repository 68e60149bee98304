"""DescribeLogDirs (API key 35): log directories and their sizes (KIP-113)."""

from kcore.protocol.schema import Array, Bool, Int16, Int32, Int64, Message, Request, String, Struct, field


class DescribableLogDirTopic(Struct):
    """One entry of `topics` of DescribeLogDirsRequest."""

    topic: String = ""
    partitions: Array[Int32] = ()


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"], api_key=35, versions="1-5", flexible="2+"):
    """The partitions to describe, null for all."""

    topics: Array[DescribableLogDirTopic] | None = ()


class DescribeLogDirsPartition(Struct):
    """One entry of `partitions` of DescribeLogDirsTopic."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    """One entry of `topics` of DescribeLogDirsResult."""

    name: String = ""
    partitions: Array[DescribeLogDirsPartition] = ()


class DescribeLogDirsResult(Struct):
    """One entry of `results` of DescribeLogDirsResponse."""

    error_code: Int16 = 0
    log_dir: String = ""
    topics: Array[DescribeLogDirsTopic] = ()
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: Bool = field("5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    """Directories with partitions; v4 adds total and usable bytes (KIP-827)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: Array[DescribeLogDirsResult] = ()
