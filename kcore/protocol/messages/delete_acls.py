"""DeleteAcls (API key 31): deleting ACLs (KIP-140)."""

from kcore.protocol.schema import Array, Int8, Int16, Int32, Message, NullableString, Request, String, Struct


class DeleteAclsFilter(Struct):
    """One entry of `filters` of DeleteAclsRequest."""

    resource_type_filter: Int8 = 0
    resource_name_filter: NullableString = ""
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString = ""
    host_filter: NullableString = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Request["DeleteAclsResponse"], api_key=31, versions="1-3", flexible="2+"):
    """The filters that select the ACLs to delete; v1 adds pattern types (KIP-290)."""

    filters: Array[DeleteAclsFilter] = ()


class DeleteAclsMatchingAcl(Struct):
    """One entry of `matching_acls` of DeleteAclsFilterResult."""

    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Struct):
    """One entry of `filter_results` of DeleteAclsResponse."""

    error_code: Int16 = 0
    error_message: NullableString = ""
    matching_acls: Array[DeleteAclsMatchingAcl] = ()


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    """The deleted ACLs, by filter."""

    throttle_time_ms: Int32 = 0
    filter_results: Array[DeleteAclsFilterResult] = ()
