"""CreateAcls (API key 30): creating ACLs (KIP-140)."""

from kcore.protocol.schema import Array, Int8, Int16, Int32, Message, NullableString, Request, String, Struct


class AclCreation(Struct):
    """One entry of `creations` of CreateAclsRequest."""

    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Request["CreateAclsResponse"], api_key=30, versions="1-3", flexible="2+"):
    """ACLs to create; v1 adds pattern types (KIP-290)."""

    creations: Array[AclCreation] = ()


class AclCreationResult(Struct):
    """One entry of `results` of CreateAclsResponse."""

    error_code: Int16 = 0
    error_message: NullableString = ""


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    """One result per ACL."""

    throttle_time_ms: Int32 = 0
    results: Array[AclCreationResult] = ()
