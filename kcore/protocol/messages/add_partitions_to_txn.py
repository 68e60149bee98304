"""AddPartitionsToTxn (API key 24): adding partitions to a transaction (KIP-98)."""

from kcore.protocol.schema import Array, Bool, Int16, Int32, Int64, Message, Request, String, Struct, field


class AddPartitionsToTxnTopic(Struct):
    """One entry of `topics` or `v3_and_below_topics`."""

    name: String = ""
    partitions: Array[Int32] = ()


class AddPartitionsToTxnTransaction(Struct):
    """One entry of `transactions` of AddPartitionsToTxnRequest."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: Array[AddPartitionsToTxnTopic] = ()


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"], api_key=24, versions="0-5", flexible="3+"):
    """The partitions to add to a transaction.

    From v4, brokers send the request, to add or to verify partitions of many transactions (KIP-890).
    """

    transactions: Array[AddPartitionsToTxnTransaction] = field("4+", default=())
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = field("0-3", default=())


class AddPartitionsToTxnPartitionResult(Struct):
    """One entry of `results_by_partition` of AddPartitionsToTxnTopicResult."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    """One entry of `topic_results` or `results_by_topic_v3_and_below`."""

    name: String = ""
    results_by_partition: Array[AddPartitionsToTxnPartitionResult] = ()


class AddPartitionsToTxnResult(Struct):
    """One entry of `results_by_transaction` of AddPartitionsToTxnResponse."""

    transactional_id: String = ""
    topic_results: Array[AddPartitionsToTxnTopicResult] = ()


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    """One error code per partition; from v4, grouped by transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: Array[AddPartitionsToTxnResult] = field("4+", default=())
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = field("0-3", default=())
