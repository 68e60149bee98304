"""InitProducerId (API key 22): a producer's id and epoch (KIP-98)."""

from kcore.protocol.schema import Bool, Int16, Int32, Int64, Message, NullableString, Request, field


class InitProducerIdRequest(Request["InitProducerIdResponse"], api_key=22, versions="0-6", flexible="2+"):
    """A request for a new producer id or, from v3, for the next epoch of a producer id (KIP-360). v6 adds two-phase
    commit (KIP-939).
    """

    transactional_id: NullableString = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+", default=False)
    keep_prepared_txn: Bool = field("6+", default=False)


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    """The new producer id and epoch; v6 adds the producer id and epoch of the ongoing transaction (KIP-939)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
