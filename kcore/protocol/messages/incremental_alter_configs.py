"""IncrementalAlterConfigs (API key 44): changing single settings (KIP-339)."""

from kcore.protocol.schema import Array, Bool, Int8, Int16, Int32, Message, NullableString, Request, String, Struct


class AlterableConfig(Struct):
    """One entry of `configs` of AlterConfigsResource."""

    name: String = ""
    config_operation: Int8 = 0
    value: NullableString = ""


class AlterConfigsResource(Struct):
    """One entry of `resources` of IncrementalAlterConfigsRequest."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Array[AlterableConfig] = ()


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"], api_key=44, versions="0-1", flexible="1+"
):
    """The changes of settings, each of which sets, deletes, appends or subtracts a value."""

    resources: Array[AlterConfigsResource] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    """One entry of `responses` of IncrementalAlterConfigsResponse."""

    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    """One result per resource."""

    throttle_time_ms: Int32 = 0
    responses: Array[AlterConfigsResourceResponse] = ()
