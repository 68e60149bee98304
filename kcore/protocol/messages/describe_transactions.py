"""DescribeTransactions (API key 65): the description of transactions (KIP-664)."""

from kcore.protocol.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct


class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"], api_key=65, versions="0", flexible="0+"):
    """The transactional ids to describe."""

    transactional_ids: Array[String] = ()


class TopicData(Struct):
    """One entry of `topics` of TransactionState."""

    topic: String = ""
    partitions: Array[Int32] = ()


class TransactionState(Struct):
    """One entry of `transaction_states` of DescribeTransactionsResponse."""

    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Array[TopicData] = ()


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    """State, producer and partitions of each transaction."""

    throttle_time_ms: Int32 = 0
    transaction_states: Array[TransactionState] = ()
