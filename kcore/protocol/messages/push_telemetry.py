"""PushTelemetry (API key 72): a client's metrics (KIP-714)."""

from kcore.protocol.schema import ZERO_UUID, Bool, Bytes, Int8, Int16, Int32, Message, Request, Uuid


class PushTelemetryRequest(Request["PushTelemetryResponse"], api_key=72, versions="0", flexible="0+"):
    """The client's metrics in the OpenTelemetry format."""

    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    """The error code."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
