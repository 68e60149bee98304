"""DescribeConfigs (API key 32): reading settings (KIP-133)."""

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


class DescribeConfigsResource(Struct):
    """One entry of `resources` of DescribeConfigsRequest."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: Array[String] | None = ()


class DescribeConfigsRequest(Request["DescribeConfigsResponse"], api_key=32, versions="1-4", flexible="4+"):
    """The resources and settings to describe; v1 can request synonyms (KIP-226), v3 documentation (KIP-569)."""

    resources: Array[DescribeConfigsResource] = ()
    include_synonyms: Bool = False
    include_documentation: Bool = field("3+", default=False)


class DescribeConfigsSynonym(Struct):
    """One entry of `synonyms` of DescribeConfigsResourceResult."""

    name: String = ""
    value: NullableString = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    """One entry of `configs` of DescribeConfigsResult."""

    name: String = ""
    value: NullableString = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: Array[DescribeConfigsSynonym] = ()
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: NullableString = field("3+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    """One entry of `results` of DescribeConfigsResponse."""

    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Array[DescribeConfigsResourceResult] = ()


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    """The settings of each resource, with their sources."""

    throttle_time_ms: Int32 = 0
    results: Array[DescribeConfigsResult] = ()
