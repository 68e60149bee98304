"""GetTelemetrySubscriptions (API key 71): the metrics that a client should push (KIP-714)."""

from kcore.protocol.schema import ZERO_UUID, Array, Bool, Int8, Int16, Int32, Message, Request, String, Uuid


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"], api_key=71, versions="0", flexible="0+"
):
    """The client's instance id; zero if the client has no id yet."""

    client_instance_id: Uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    """The client's subscription: metrics, push interval and limits."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: Array[Int8] = ()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: Array[String] = ()
