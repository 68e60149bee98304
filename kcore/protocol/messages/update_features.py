"""UpdateFeatures (API key 57): finalized features of the cluster (KIP-584)."""

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


class FeatureUpdateKey(Struct):
    """One entry of `feature_updates` of UpdateFeaturesRequest."""

    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"], api_key=57, versions="0-2", flexible="0+"):
    """The levels to finalize; v1 adds upgrade types and validation (KIP-778)."""

    timeout_ms: Int32 = 60000
    feature_updates: Array[FeatureUpdateKey] = ()
    validate_only: Bool = field("1+", default=False)


class UpdatableFeatureResult(Struct):
    """One entry of `results` of UpdateFeaturesResponse."""

    feature: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    """The error and, up to v1, one result per feature."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    results: Array[UpdatableFeatureResult] = field("0-1", default=(), ignorable=True)
