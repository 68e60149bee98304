"""Two codecs that share no code with kcore's codec: kwire (driven by field tables) and kio (generated classes)."""

import io
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kcore.protocol.schema import ZERO_UUID, Message, Struct
from tests.golden import kwire
from tests.protocol.strategies import KIND_NAMES, within


def to_kwire(value: Struct, version: int) -> dict[str, Any]:
    """Returns the dict that kwire encodes to a message and decodes from it.

    The dict has every field of the version. A tagged struct with default values, which is not encoded, is {}.
    """
    out: dict[str, Any] = {}
    for spec in value.FIELDS:
        if within(spec.versions, version):
            field = getattr(value, spec.name)
            if spec.fresh and within(spec.tagged, version) and field == spec.struct():
                out[spec.name] = {}
            elif KIND_NAMES[spec.kind] == "array" and field is not None:
                out[spec.name] = [_one(KIND_NAMES[spec.item], x, version) for x in field]
            else:
                out[spec.name] = _one(KIND_NAMES[spec.kind], field, version)
    return out


def _one(kind: str, value: Any, version: int) -> Any:
    if value is None:
        return None
    if kind == "struct":
        return to_kwire(value, version)
    return value.hex() if kind == "uuid" else value


def kwire_name(cls: type[Message]) -> str | None:
    """Returns the name of the class in kwire's tables, or None if the tables lack it."""
    return cls.__name__ if cls.__name__ in kwire.SCHEMAS else None


def kio_class(cls: type[Message], version: int) -> Any:
    """Returns kio's class for a request or response, or None if kio has none."""
    load = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
    try:
        return load(cls.API_KEY, version)
    except Exception:
        return None


def kio_write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_read(cls: Any, data: bytes) -> Any:
    entity, size = entity_reader(cls)(data, 0)
    assert size == len(data)
    return entity


def same_as_kio(value: Struct, entity: Any, version: int) -> bool:
    """Returns True if kio's object has the same values as kcore's object, under the same field names.

    For fields that contain a time, kio's names lack the suffix `_ms`.
    """
    for spec in value.FIELDS:
        if not within(spec.versions, version):
            continue
        ours = getattr(value, spec.name)
        theirs = getattr(entity, spec.name) if hasattr(entity, spec.name) else getattr(entity, spec.name[:-3])
        if not _same(ours, theirs, version):
            return False
    return True


def _same(ours: Any, theirs: Any, version: int) -> bool:
    if isinstance(ours, Struct):
        return theirs is not None and same_as_kio(ours, theirs, version)
    if isinstance(ours, tuple):
        return len(ours) == len(theirs) and all(_same(a, b, version) for a, b in zip(ours, theirs, strict=True))
    if isinstance(theirs, timedelta):
        return ours == theirs // timedelta(milliseconds=1)
    if isinstance(theirs, datetime):
        return ours == round(theirs.timestamp() * 1000)
    if isinstance(theirs, UUID):
        return ours == theirs.bytes
    if theirs is None and ours in (-1, ZERO_UUID):
        return True
    return bool(ours == theirs)
