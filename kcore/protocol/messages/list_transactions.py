"""ListTransactions (API key 66): the transactions of a coordinator (KIP-664)."""

from kcore.protocol.schema import Array, Int16, Int32, Int64, Message, NullableString, Request, String, Struct, field


class ListTransactionsRequest(Request["ListTransactionsResponse"], api_key=66, versions="0-2", flexible="0+"):
    """The filters by state and producer id. v1 adds a minimum duration (KIP-994), v2 a pattern of the transactional id
    (KIP-1152).
    """

    state_filters: Array[String] = ()
    producer_id_filters: Array[Int64] = ()
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: NullableString = field("2+", default=None)


class TransactionState(Struct):
    """One entry of `transaction_states` of ListTransactionsResponse."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    """Transactional ids with producer and state."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Array[String] = ()
    transaction_states: Array[TransactionState] = ()
