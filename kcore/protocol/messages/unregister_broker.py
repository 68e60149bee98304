"""UnregisterBroker (API key 64): removing a broker from the cluster (KIP-631)."""

from kcore.protocol.schema import Int16, Int32, Message, NullableString, Request


class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"], api_key=64, versions="0", flexible="0+"):
    """The id of the broker to remove."""

    broker_id: Int32 = 0


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    """The error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
