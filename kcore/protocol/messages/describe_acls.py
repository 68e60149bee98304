"""DescribeAcls (API key 29): listing ACLs (KIP-140)."""

from kcore.protocol.schema import Array, Int8, Int16, Int32, Message, NullableString, Request, String, Struct


class DescribeAclsRequest(Request["DescribeAclsResponse"], api_key=29, versions="1-3", flexible="2+"):
    """A filter of ACLs; v1 adds pattern types (KIP-290)."""

    resource_type_filter: Int8 = 0
    resource_name_filter: NullableString = ""
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString = ""
    host_filter: NullableString = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Struct):
    """One entry of `acls` of DescribeAclsResource."""

    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Struct):
    """One entry of `resources` of DescribeAclsResponse."""

    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: Array[AclDescription] = ()


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    """The ACLs that match the filter, by resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    resources: Array[DescribeAclsResource] = ()
