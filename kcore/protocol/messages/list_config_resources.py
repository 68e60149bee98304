"""ListConfigResources (API key 74): resources that have settings (KIP-1142)."""

from kcore.protocol.schema import Array, Int8, Int16, Int32, Message, Request, String, Struct, field


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"], api_key=74, versions="0-1", flexible="0+"):
    """The types of the resources to list. v0 lists only client metrics subscriptions (KIP-714)."""

    resource_types: Array[Int8] = field("1+", default=())


class ConfigResource(Struct):
    """One entry of `config_resources` of ListConfigResourcesResponse."""

    resource_name: String = ""
    resource_type: Int8 = field("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    """The resources."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: Array[ConfigResource] = ()
