"""Logs that are not whole: a rebuild says so wherever that can be known, and only there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kcore.spark.batches import check
from kcore.spark.export import export
from kcore.spark.folder_frames import rebuilt_of
from kcore.spark.rebuild import END, AsOf
from kcore.spark.sources import open_source

Place = tuple[str, int]


def incomplete(folder: Path, as_of: AsOf = END) -> set[Place]:
    """The partitions whose state is not sure, by rows and by columns."""
    found: dict[bool, set[Place]] = {True: set(), False: set()}
    with open_source(folder) as source:
        for part in source.parts():
            for with_records, places in found.items():
                state, cut, _ = rebuilt_of(source, part, as_of, with_records)
                if not state.completeness.is_complete(state.last_stable_offset, cut):
                    places.add(part[:2])
    assert found[True] == found[False]
    return found[False]


@pytest.fixture
def logs(kafka_logs: Path, tmp_path: Path) -> Path:
    """A copy of a compacted log that was not compacted in its newer half, and of two that never were."""
    for name in ("__consumer_offsets-3", "__transaction_state-0", "__share_group_state-0"):
        shutil.copytree(kafka_logs / "moment-4" / name, tmp_path / "logs" / name)
    return tmp_path / "logs"


OFFSETS, TRANSACTIONS, SHARES = ("__consumer_offsets", 3), ("__transaction_state", 0), ("__share_group_state", 0)


def segment(logs: Path, place: Place, number: int) -> Path:
    """A segment file by its place in the log."""
    return sorted((logs / f"{place[0]}-{place[1]}").iterdir())[number]


def damage(path: Path, share: float) -> None:
    """Changes a bit somewhere."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= 1
    path.write_bytes(data)


def test_what_compaction_left_is_complete_at_the_end(logs: Path, tmp_path: Path) -> None:
    assert incomplete(logs) == set()
    with open_source(logs) as source:
        export(source, tmp_path / "events")
    assert incomplete(tmp_path / "events") == set()


def test_a_front_that_is_missing(logs: Path, tmp_path: Path) -> None:
    """A state of shares begins anew with each snapshot: there it is legal."""
    segment(logs, OFFSETS, 0).unlink()
    shares = segment(logs, SHARES, 0)
    with open_source(logs) as source:
        export(source, tmp_path / "events", start=30)
    assert incomplete(tmp_path / "events") == {OFFSETS, TRANSACTIONS}
    shares.rename(shares.with_name(f"{3:020d}.log"))
    assert incomplete(logs) == {OFFSETS}


def test_a_gap_where_compaction_had_not_come(logs: Path, tmp_path: Path) -> None:
    middle = segment(logs, OFFSETS, 1)
    data = memoryview(middle.read_bytes())
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + check(data, starts[-1]).size_bytes)
    third = len(starts) // 3
    middle.write_bytes(bytes(data[: starts[third]]) + bytes(data[starts[2 * third] :]))
    assert incomplete(logs) == {OFFSETS}
    with open_source(logs) as source:
        export(source, tmp_path / "events")
    assert incomplete(tmp_path / "events") == {OFFSETS}


@pytest.mark.parametrize("place", [OFFSETS, TRANSACTIONS, SHARES])
def test_damage_in_front_of_the_moment(logs: Path, place: Place) -> None:
    damage(segment(logs, place, 0), 0.5)
    assert incomplete(logs) == {place}


def test_damage_behind_the_moment_is_none(logs: Path) -> None:
    damage(segment(logs, TRANSACTIONS, 0), 0.5)
    assert TRANSACTIONS not in incomplete(logs, AsOf(offset=10))


def test_only_the_newest_segment_may_end_half_written(logs: Path) -> None:
    """With a half batch, or with zeros."""
    newest = segment(logs, OFFSETS, -1)
    newest.write_bytes(newest.read_bytes()[:-7])
    reserved = segment(logs, TRANSACTIONS, 0)
    reserved.write_bytes(reserved.read_bytes() + bytes(5_000))
    assert incomplete(logs) == set()
    first = segment(logs, OFFSETS, 0)
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    assert incomplete(logs) == {OFFSETS}
