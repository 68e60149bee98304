"""The layout of a record batch's header, which Python and the compiled modules each define in one place."""

from __future__ import annotations

import re
import struct

import pytest

from kcore.protocol import batch_layout
from kcore_ext.batch import BatchBuilder
from tests.tidy.rules import ROOT, text_of, tracked_files

COMPILED = ROOT / "kcore_ext" / "batch" / "layout.pxd"
CONSTANT = re.compile(r"^    ([A-Z_]+) = (0x[0-9a-f]+|\d+)\b", re.MULTILINE)
REPEATED = re.compile(
    r"\b_?(?:LENGTH|LEADER_EPOCH|MAGIC|CRC|ATTRIBUTES|LAST_(?:OFFSET_)?DELTA|(?:BASE|MAX)_TIMESTAMP|PRODUCER_ID"
    r"|PRODUCER_EPOCH|BASE_SEQUENCE|COUNT)_AT\b(?:: Final)? = \d"
    r"|\bHEADER_(?:BYTES|SIZE)\b(?:: Final)? = 61\b"
    r"|(?:read|write)_int(?:16|32|64)\((?:at|batch) \+ (?:21|23|27|35|43|51|53|57)\b"
)
"""Pattern of a definition or use of a position as a number, in any module but the two that define the layout."""


def test_the_positions_are_those_of_a_batch() -> None:
    builder = BatchBuilder(200, base_timestamp_ms=27, producer_id=43, producer_epoch=51, base_sequence=53)
    builder.append(35, b"key", b"value")
    batch = builder.build(7, 12)
    fields = {
        "base_offset": (0, 7),
        "length": (batch_layout.LENGTH_AT, len(batch) - 12),
        "leader_epoch": (batch_layout.LEADER_EPOCH_AT, 12),
        "magic": (batch_layout.MAGIC_AT, 2),
        "attributes": (batch_layout.ATTRIBUTES_AT, 0),
        "last_delta": (batch_layout.LAST_DELTA_AT, 0),
        "base_timestamp": (batch_layout.BASE_TIMESTAMP_AT, 27),
        "max_timestamp": (batch_layout.MAX_TIMESTAMP_AT, 35),
        "producer_id": (batch_layout.PRODUCER_ID_AT, 43),
        "producer_epoch": (batch_layout.PRODUCER_EPOCH_AT, 51),
        "base_sequence": (batch_layout.BASE_SEQUENCE_AT, 53),
        "count": (batch_layout.COUNT_AT, 1),
    }
    read = dict(zip(batch_layout.FIELDS, batch_layout.HEADER.unpack_from(batch), strict=True))
    assert {name: read[name] for name in fields} == {name: value for name, (_, value) in fields.items()}
    for name, (position, value) in fields.items():
        assert struct.unpack_from(f">{batch_layout.FIELDS[name]}", batch, position) == (value,)
        assert batch_layout.header_struct(name).unpack_from(batch) == (value,)
    assert batch_layout.header_struct("base_offset", "max_timestamp").unpack_from(batch) == (7, 35)
    assert batch_layout.CHECKED_FIELDS.unpack_from(batch, batch_layout.CHECKED_FROM)[-3:] == (51, 53, 1)


def test_python_and_the_compiled_modules_have_the_same_layout() -> None:
    compiled = {name: int(value, 0) for name, value in CONSTANT.findall(text_of(COMPILED))}
    layout = {name: value for name, value in vars(batch_layout).items() if name.isupper() and isinstance(value, int)}
    only_compiled = {"SMALLEST_LENGTH", "MAX_SHARED_VALUE"}
    assert {name: value for name, value in compiled.items() if name not in only_compiled} | {"MAGIC": 2} == layout


@pytest.mark.parametrize("package", ["kcore", "kcore_ext"])
def test_no_other_module_repeats_a_position(package: str) -> None:
    repeated = {
        str(path.relative_to(ROOT)): REPEATED.findall(text_of(path))
        for path in tracked_files(".py", ".pyx", ".pxd")
        if path.is_relative_to(ROOT / package) and path != COMPILED
    }
    assert {name: found for name, found in repeated.items() if found} == {}
