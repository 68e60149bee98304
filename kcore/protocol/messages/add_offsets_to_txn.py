"""AddOffsetsToTxn (API key 25): adding a group's offsets to a transaction (KIP-98)."""

from kcore.protocol.schema import Int16, Int32, Int64, Message, Request, String


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], api_key=25, versions="0-4", flexible="3+"):
    """The producer, and the group whose offsets the transaction will commit."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    """The error code."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
