"""AllocateProducerIds (API key 67): a block of producer ids for a broker (KIP-730)."""

from kcore.protocol.schema import Int16, Int32, Int64, Message, Request


class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"], api_key=67, versions="0", flexible="0+"):
    """The broker that needs a block."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message, api_key=67, versions="0", flexible="0+"):
    """The first id of the block, and the number of its ids."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
