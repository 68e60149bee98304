"""DescribeCluster (API key 60): cluster id, controller and brokers (KIP-700)."""

from kcore.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    field,
)


class DescribeClusterRequest(Request["DescribeClusterResponse"], api_key=60, versions="0-2", flexible="0+"):
    """A request for the cluster; v1 can select the controllers (KIP-919), v2 can include fenced brokers (KIP-1073)."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)


class DescribeClusterBroker(Struct):
    """One entry of `brokers` of DescribeClusterResponse."""

    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None
    is_fenced: Bool = field("2+", default=False)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    """The id of the cluster, its controller, and its brokers or controllers."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: Array[DescribeClusterBroker] = ()
    cluster_authorized_operations: Int32 = -0x80000000
