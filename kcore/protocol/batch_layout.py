"""The header of a record batch v2: its fields, their positions, and the bits of its attributes.

`kcore_ext/batch/layout.pxd` has the same constants for compiled modules. This module needs no compiled module, because
Spark executors may not have any.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

FIELDS: Final[Mapping[str, str]] = {
    "base_offset": "q",
    "length": "i",
    "leader_epoch": "i",
    "magic": "b",
    "crc": "I",
    "attributes": "h",
    "last_delta": "i",
    "base_timestamp": "q",
    "max_timestamp": "q",
    "producer_id": "q",
    "producer_epoch": "h",
    "base_sequence": "i",
    "count": "i",
}
"""Name of each field, in the order of the header -> its format code of `struct`. All fields are big-endian."""


def _position(field: str) -> int:
    names = list(FIELDS)
    return struct.calcsize(">" + "".join(FIELDS[name] for name in names[: names.index(field)]))


LENGTH_AT: Final = _position("length")
LEADER_EPOCH_AT: Final = _position("leader_epoch")
MAGIC_AT: Final = _position("magic")
CRC_AT: Final = _position("crc")
ATTRIBUTES_AT: Final = _position("attributes")
LAST_DELTA_AT: Final = _position("last_delta")
BASE_TIMESTAMP_AT: Final = _position("base_timestamp")
MAX_TIMESTAMP_AT: Final = _position("max_timestamp")
PRODUCER_ID_AT: Final = _position("producer_id")
PRODUCER_EPOCH_AT: Final = _position("producer_epoch")
BASE_SEQUENCE_AT: Final = _position("base_sequence")
COUNT_AT: Final = _position("count")
"""Positions of the fields in bytes from the start of a batch. `last_delta` is the last offset delta."""

CHECKED_FROM: Final = ATTRIBUTES_AT
"""Position of the first byte that the CRC-32C covers. It covers all bytes from there to the end of the batch."""
LENGTH_OVERHEAD: Final = LEADER_EPOCH_AT
"""Number of bytes at the start of a batch that its length field does not count."""
HEADER_BYTES: Final = COUNT_AT + 4
"""Size of a batch header, and so the minimum size of a batch."""
MAGIC: Final = 2
"""The magic byte of a batch v2."""

CODEC_BITS: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
"""Bits of the attributes: the codec, the timestamp type, and the kinds of batches."""


def header_struct(*names: str) -> struct.Struct:
    """Returns a struct that reads fields from the start of a batch, and skips the fields between them.

    Args:
        names: the names of fields, in the order of the header.
    """
    codes = []
    for name, code in FIELDS.items():
        codes.append(code if name in names else f"{struct.calcsize('>' + code)}x")
        if name == names[-1]:
            break
    return struct.Struct(">" + "".join(codes))


HEADER: Final = header_struct(*FIELDS)
"""Reads and writes all fields."""
CHECKED_FIELDS: Final = struct.Struct(">" + HEADER.format[1:][list(FIELDS).index("attributes") :])
"""Reads and writes the fields that the CRC-32C covers, from the attributes on."""
