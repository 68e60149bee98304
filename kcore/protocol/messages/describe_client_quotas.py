"""DescribeClientQuotas (API key 48): reading client quotas (KIP-546)."""

from kcore.protocol.schema import (
    Array,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
)


class ComponentData(Struct):
    """One entry of `components` of DescribeClientQuotasRequest."""

    entity_type: String = ""
    match_type: Int8 = 0
    match: NullableString = ""


class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"], api_key=48, versions="0-1", flexible="1+"):
    """A filter for the users, client ids and addresses with quotas."""

    components: Array[ComponentData] = ()
    strict: Bool = False


class EntityData(Struct):
    """One entry of `entity` of EntryData."""

    entity_type: String = ""
    entity_name: NullableString = ""


class ValueData(Struct):
    """One entry of `values` of EntryData."""

    key: String = ""
    value: Float64 = 0.0


class EntryData(Struct):
    """One entry of `entries` of DescribeClientQuotasResponse."""

    entity: Array[EntityData] = ()
    values: Array[ValueData] = ()


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    """The quotas of the entities that match the filter."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    entries: Array[EntryData] | None = ()
