"""AlterClientQuotas (API key 49): changing client quotas (KIP-546)."""

from kcore.protocol.schema import Array, Bool, Float64, Int16, Int32, Message, NullableString, Request, String, Struct


class EntityData(Struct):
    """One entry of `entity` of EntryData and AlterClientQuotasResponseEntryData."""

    entity_type: String = ""
    entity_name: NullableString = ""


class OpData(Struct):
    """One entry of `ops` of EntryData."""

    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(Struct):
    """One entry of `entries` of AlterClientQuotasRequest."""

    entity: Array[EntityData] = ()
    ops: Array[OpData] = ()


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"], api_key=49, versions="0-1", flexible="1+"):
    """Quotas to set or remove."""

    entries: Array[EntryData] = ()
    validate_only: Bool = False


class AlterClientQuotasResponseEntryData(Struct):
    """One entry of `entries` of AlterClientQuotasResponse."""

    error_code: Int16 = 0
    error_message: NullableString = ""
    entity: Array[EntityData] = ()


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    """One result per entity."""

    throttle_time_ms: Int32 = 0
    entries: Array[AlterClientQuotasResponseEntryData] = ()
