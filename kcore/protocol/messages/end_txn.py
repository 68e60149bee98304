"""EndTxn (API key 26): committing or aborting a transaction (KIP-98)."""

from kcore.protocol.schema import Bool, Int16, Int32, Int64, Message, Request, String, field


class EndTxnRequest(Request["EndTxnResponse"], api_key=26, versions="0-5", flexible="3+"):
    """The producer, and its choice to commit or abort. In v5, the coordinator raises the producer epoch (KIP-890)."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    """The error code and, from v5, the next producer id and epoch (KIP-890)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)
