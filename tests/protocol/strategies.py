"""Hypothesis strategies derived from the declarations, and lists of all declared classes."""

import os
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kcore.protocol.api_keys import ApiKey, request_class, response_class
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kcore.protocol.headers import RequestHeader, ResponseHeader
from kcore.protocol.messages.default_principal_data import DefaultPrincipalData
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, key_classes
from kcore.protocol.records.control import ControlRecordTypeSchema, EndTxnMarker
from kcore.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey
from kcore.protocol.records.metadata import MetadataRecord
from kcore.protocol.schema import ZERO_UUID, Message, Struct
from kcore_ext.codec.plan import WIRE_KINDS, FieldSpec

THOROUGH = os.environ.get("KCORE_HYPOTHESIS") == "thorough"
"""True if the environment variable KCORE_HYPOTHESIS is "thorough". The tests then try many more examples.

Otherwise all tests of this folder together take less than a minute.
"""

KIND_NAMES = {number: name for name, number in WIRE_KINDS.items()}
BOUNDS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def examples(few: int, many: int) -> settings:
    """Returns settings for a property test: `few` examples, or `many` in the thorough profile. A failure prints how to
    reproduce it.
    """
    return settings(
        max_examples=many if THOROUGH else few,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@cache
def all_messages() -> tuple[type[Message], ...]:
    """Lists every declared top-level class."""
    found: list[type[Message]] = []
    for key in ApiKey:
        try:
            found += [request_class(key), response_class(key)]
        except KeyError:
            continue
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE):
        for cls in key_classes(topic).values():
            found += [cls, cls.VALUE]
    found += [LegacyOffsetCommitKey, LegacyOffsetCommitKey.VALUE, ControlRecordTypeSchema, EndTxnMarker]
    found += [ConsumerProtocolSubscription, ConsumerProtocolAssignment, DefaultPrincipalData]
    found += [RequestHeader, ResponseHeader, *MetadataRecord.__subclasses__()]
    return tuple(dict.fromkeys(found))


def every_pair() -> list[tuple[type[Message], int]]:
    """Lists every declared class with every one of its versions."""
    return [(cls, v) for cls in all_messages() for v in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)]


def _scalar(kind: str, name: str, tame: bool) -> st.SearchStrategy[Any]:
    if kind == "bool":
        return st.booleans()
    if kind == "float64":
        return st.floats(allow_nan=False)
    if kind == "uuid":
        return st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16)
    if kind == "string":
        return st.text(max_size=12)
    if kind in ("bytes", "records"):
        return st.binary(max_size=200)
    if tame and name.endswith("error_code"):
        return st.integers(-1, 133)
    if tame and kind == "int64" and name.endswith("_ms"):
        return st.integers(0, 10**12)
    return st.integers(*BOUNDS[kind]) | st.integers(0, 127)


@cache
def field_strategy(spec: FieldSpec, tame: bool = False) -> st.SearchStrategy[Any]:
    """Returns a strategy for values of one field in any version. With `tame`, only values that kio can represent."""
    kind = KIND_NAMES[spec.kind]
    if kind == "array":
        item = KIND_NAMES[spec.item]
        element = struct_strategy(spec.struct, tame) if item == "struct" else _scalar(item, spec.name, tame)
        values: st.SearchStrategy[Any] = st.lists(element, max_size=2).map(tuple)
    elif kind == "struct":
        values = struct_strategy(spec.struct, tame)
    else:
        values = _scalar(kind, spec.name, tame)
    if spec.nullable[0] <= spec.nullable[1]:
        values = st.none() | values
    default = spec.struct() if spec.fresh else spec.default
    return st.just(default) | values


@cache
def struct_strategy(cls: type[Struct], tame: bool = False) -> st.SearchStrategy[Any]:
    """Draws objects of a class with any values in any field."""
    return st.builds(cls, **{spec.name: field_strategy(spec, tame) for spec in cls.FIELDS})


def within(span: tuple[int, int], version: int) -> bool:
    return span[0] <= version <= span[1]


def at_version(value: Struct, version: int) -> Any:
    """Returns a copy of a message that the given version can encode.

    Fields that the version does not have get their default values, and so do nulls that the version forbids.
    """
    kept = {}
    for spec in value.FIELDS:
        if not within(spec.versions, version):
            continue
        field = getattr(value, spec.name)
        if field is None and not within(spec.nullable, version):
            continue
        if spec.struct is not None and field is not None:
            is_array = KIND_NAMES[spec.kind] == "array"
            field = tuple(at_version(x, version) for x in field) if is_array else at_version(field, version)
        kept[spec.name] = field
    return type(value)(**kept)
