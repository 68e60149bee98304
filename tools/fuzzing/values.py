"""Random valid messages made from their schemas, and mutations of bytes."""

from __future__ import annotations

import random
import struct
from typing import Any

from kcore.protocol.compression import compress
from kcore_ext.batch import BatchBuilder
from kcore_ext.codec.plan import ARRAY, STRUCT, WIRE_KINDS, FieldSpec

KINDS = {number: name for name, number in WIRE_KINDS.items()}
WIDTHS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}
UNSIGNED = {"uint16", "uint32"}
NAMES = ("", "t", "g", "consumer", "range", "u", "a-b.c_d", "x" * 100, "é", "__consumer_offsets")
MAX_DEPTH = 6


def message(cls: Any, version: int, rng: random.Random, depth: int = 0) -> Any:
    """Generates a random object of a message or struct class that can be encoded in `version`."""
    values = {
        spec.name: _field(spec, version, rng, depth)
        for spec in cls.FIELDS
        if spec.versions[0] <= version <= spec.versions[1]
    }
    return cls(**values)


def _field(spec: FieldSpec, version: int, rng: random.Random, depth: int) -> Any:
    if spec.nullable[0] <= version <= spec.nullable[1] and rng.random() < 0.2:
        return None
    if spec.kind == ARRAY:
        count = 0 if depth > MAX_DEPTH else rng.choice((0, 1, 1, 2, 3))
        if spec.item == STRUCT:
            return [message(spec.struct, version, rng, depth + 1) for _ in range(count)]
        return [scalar(KINDS[spec.item], rng) for _ in range(count)]
    if spec.kind == STRUCT:
        return message(spec.struct, version, rng, depth + 1)
    return scalar(KINDS[spec.kind], rng)


def scalar(kind: str, rng: random.Random) -> Any:
    """Generates a random value of a wire type. Small and unusual values are more frequent."""
    if kind in WIDTHS:
        top = 1 << WIDTHS[kind]
        low = 0 if kind in UNSIGNED else -top
        return rng.choice((0, 1, 2, 5, low, top - 1, max(low, -1), rng.randrange(low, top)))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.choice((0.0, 1.5, -1e300))
    if kind == "uuid":
        return rng.choice((bytes(16), rng.randbytes(16)))
    if kind == "string":
        return rng.choice(NAMES)
    if kind == "records" and rng.random() < 0.8:
        return batch(rng)
    return rng.randbytes(rng.choice((0, 1, 7, 40)))


def batch(rng: random.Random) -> bytes:
    """Generates a producer's record batch with any codec, producer, keys and headers."""
    builder = BatchBuilder(
        1 << 16,
        base_timestamp_ms=rng.choice((0, -1, 1_700_000_000_000)),
        producer_id=rng.choice((-1, -1, 5)),
        producer_epoch=rng.choice((-1, 0)),
        base_sequence=rng.choice((-1, 0, 2**31 - 1)),
        transactional=rng.random() < 0.1,
        control=rng.random() < 0.1,
        compression=rng.choice((0, 0, 1, 2, 3, 4)),
        compress=compress,
    )
    for _ in range(rng.randint(1, 6)):
        key = rng.choice((None, b"", rng.randbytes(5)))
        headers = [("h", rng.choice((None, b"v")))] * rng.choice((0, 0, 1, 3))
        builder.append(rng.choice((0, 1_700_000_000_000)), key, rng.randbytes(rng.choice((0, 3, 300))), headers)
    return bytes(builder.build())


def mutated(data: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """Applies one to five changes: bits, bytes, numbers, or sections that are removed, repeated or taken from another
    input.
    """
    body = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(body) + 1)
        kind = rng.randrange(9)
        if kind == 0 and at < len(body):
            body[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(body):
            body[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        elif kind == 2:
            del body[at : at + rng.randint(1, 8)]
        elif kind == 3:
            body[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 4:
            body[at:at] = body[at : at + rng.randint(1, 32)]
        elif kind == 5:
            body[at : at + 4] = struct.pack(">i", rng.choice((-2, -1, 0, 1, 2**31 - 1, -(2**31), len(body))))
        elif kind == 6:
            body[at : at + 2] = struct.pack(">h", rng.choice((-2, -1, 0, 1, 2**15 - 1, -(2**15))))
        elif kind == 7:
            body[at:at] = rng.choice((b"\xff\xff\xff\xff\x07", b"\xff" * 9 + b"\x01", b"\xff" * 12, b"\x80\x00"))
        elif other:
            start = rng.randrange(len(other))
            body[at:at] = other[start : start + rng.randint(1, 64)]
        if kind == 8 and rng.random() < 0.3:
            del body[at:]
    return bytes(body)
