"""ApiVersions (API key 18): the APIs and versions that a server supports (KIP-35)."""

from kcore.protocol.schema import Array, Bool, Int16, Int32, Int64, Message, Request, String, Struct, field


class ApiVersionsRequest(Request["ApiVersionsResponse"], api_key=18, versions="0-4", flexible="3+"):
    """A request for the supported versions. v3 adds the name and version of the client software (KIP-511). From v4, the
    lowest level of a supported feature in the response may be 0.
    """

    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)


class ApiVersion(Struct):
    """One entry of `api_keys` of ApiVersionsResponse."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    """One entry of `supported_features` of ApiVersionsResponse."""

    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    """One entry of `finalized_features` of ApiVersionsResponse."""

    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    """The versions of each API and, from v3, the supported and finalized features (KIP-584)."""

    error_code: Int16 = 0
    api_keys: Array[ApiVersion] = ()
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: Array[SupportedFeatureKey] = field("3+", default=(), tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: Array[FinalizedFeatureKey] = field("3+", default=(), tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", default=False, tag=3, ignorable=True)
