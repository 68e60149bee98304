"""AlterConfigs (API key 33): replacing all settings of a resource (KIP-133)."""

from kcore.protocol.schema import Array, Bool, Int8, Int16, Int32, Message, NullableString, Request, String, Struct


class AlterableConfig(Struct):
    """One entry of `configs` of AlterConfigsResource."""

    name: String = ""
    value: NullableString = ""


class AlterConfigsResource(Struct):
    """One entry of `resources` of AlterConfigsRequest."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Array[AlterableConfig] = ()


class AlterConfigsRequest(Request["AlterConfigsResponse"], api_key=33, versions="0-2", flexible="2+"):
    """The complete settings of each resource."""

    resources: Array[AlterConfigsResource] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    """One entry of `responses` of AlterConfigsResponse."""

    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    """One result per resource."""

    throttle_time_ms: Int32 = 0
    responses: Array[AlterConfigsResourceResponse] = ()
