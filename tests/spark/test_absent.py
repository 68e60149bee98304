"""Detection of missing partitions, from the numbers of the existing partitions, the ids in them, and given partition
counts.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kcore.errors import KcoreError
from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.spark.frames.output import REBUILD_DONE
from kcore.spark.jobs import rebuild as rebuild_job
from kcore.spark.state.absent import Absent, PlacedId, absent_partitions
from kcore.spark.state.rebuild_report import DoubtCounts, uncertainties, uncertainties_of
from kcore_ext.util.java_hash import partition_for


def ids(count: int, names: int, there: set[int]) -> list[PlacedId]:
    """Returns the ids `group-0`, `group-1` and so on that belong to an existing partition.

    Args:
        count: the partition count, which determines the partition of each id.
        names: the number of ids before the selection.
        there: the existing partitions.
    """
    placed = [PlacedId(CONSUMER_OFFSETS, partition_for(f"group-{n}", count), f"group-{n}") for n in range(names)]
    return [one for one in placed if one.partition in there]


def test_missing_partition_numbers_are_found() -> None:
    """The job cannot detect missing partitions above the highest number, nor a topic without any partition."""
    present = {CONSUMER_OFFSETS: {0, 3}, TRANSACTION_STATE: {0, 1}, SHARE_GROUP_STATE: set[int]()}
    assert absent_partitions(present) == [Absent(CONSUMER_OFFSETS, 4, True, (1, 2))]


def test_ids_exclude_smaller_partition_counts() -> None:
    """Only two of the seven partitions of a topic exist. The ids of the groups in these two partitions fit no partition
    count below seven, so the job finds the five missing partitions.
    """
    there = {1, 3}
    assert absent_partitions({CONSUMER_OFFSETS: there}, ids(7, 200, there)) == [
        Absent(CONSUMER_OFFSETS, 7, True, (0, 2, 4, 5, 6))
    ]
    everywhere = set(range(7))
    assert absent_partitions({CONSUMER_OFFSETS: everywhere}, ids(7, 200, everywhere)) == []


def test_few_ids_never_imply_too_many() -> None:
    """The job infers a partition count from the ids in existing partitions. This count never exceeds the real one, so
    the job does not report partitions that never existed.
    """
    for count in range(1, 60):
        for name in range(20):
            (one,) = ids(count, name + 1, set(range(count)))[-1:]
            for absent in absent_partitions({CONSUMER_OFFSETS: {one.partition}}, [one]):
                assert absent.partition_count <= count


def test_ids_that_fit_no_partition_are_ignored() -> None:
    wrong = [PlacedId(CONSUMER_OFFSETS, (partition_for("g", 2) + 1) % 2, "g")]
    assert absent_partitions({CONSUMER_OFFSETS: {0, 1}}, [*wrong, *ids(2, 50, {0, 1})]) == []


def test_a_given_partition_count_is_used_or_refused() -> None:
    given = {CONSUMER_OFFSETS: 3, SHARE_GROUP_STATE: 2}
    (first, second) = absent_partitions({CONSUMER_OFFSETS: {0, 2}}, ids(7, 50, {0, 2}), given)
    assert first == Absent(CONSUMER_OFFSETS, 3, False, (1,))
    assert second == Absent(SHARE_GROUP_STATE, 2, False, (0, 1))
    assert first.sentence == "the partition is missing: the topic has 3"
    with pytest.raises(KcoreError, match="__consumer_offsets cannot have 2 partitions: number 2 exists"):
        absent_partitions({CONSUMER_OFFSETS: {0, 2}}, (), {CONSUMER_OFFSETS: 2})


def test_the_messages_on_a_state_have_the_singular_for_one() -> None:
    lines = uncertainties(DoubtCounts(lost=1, compacted=1, holes=1, faults=1, named=0), ()).lines
    assert [line.partition(":")[0].partition(";")[0] for line in lines] == [
        "1 partition is not complete",
        "1 partition is not complete",
        "1 record or part could not be read or applied",
        "1 partition was compacted",
    ]


@pytest.mark.spark
def test_a_rebuild_reports_missing_partitions(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """The rebuild reports missing partitions and segments.

    First, only two of a real broker's five partitions exist. Then a segment is missing, and the caller states the
    partition count of a topic whose log is missing.
    """
    for name in ("__consumer_offsets-0", "__consumer_offsets-1"):
        shutil.copytree(kafka_logs / "moment-4" / name, tmp_path / "logs" / name)
    counts = rebuild_job.rebuild(spark, tmp_path / "logs", tmp_path / "out")
    absent = [f"__consumer_offsets-{n}: the partition is missing: the topic has at least 5" for n in (2, 3, 4)]
    holes = "2 partitions were compacted: the loss of a file there would go unnoticed; see `holes_to`"
    uncertainties = uncertainties_of(tmp_path / "out")
    assert uncertainties.are_grave
    assert uncertainties.lines == [
        *absent,
        "3 partitions are not complete: parts of their logs are missing; see the table `partitions`",
        "3 records or parts could not be read or applied; see the table `faults`",
        holes,
    ]
    assert (counts["partitions"], counts["faults"]) == (5, 3)
    (tmp_path / "logs" / "__consumer_offsets-0" / f"{31_001:020d}.log").rename(
        tmp_path / "logs" / "__consumer_offsets-0" / f"{31_001:020d}.timeindex"
    )
    partitions = {CONSUMER_OFFSETS: 2, TRANSACTION_STATE: 1}
    rebuild_job.rebuild(spark, tmp_path / "logs", tmp_path / "out", partitions=partitions)
    assert uncertainties_of(tmp_path / "out").lines == [
        f"__consumer_offsets-0: {31_001:020d}.log is missing, but {31_001:020d}.timeindex exists",
        "__transaction_state-0: the partition is missing: the topic has 1",
        "2 partitions are not complete: parts of their logs are missing; see the table `partitions`",
        "2 records or parts could not be read or applied; see the table `faults`",
        holes.replace("2 partitions were", "1 partition was"),
    ]
    done = json.loads((tmp_path / "out" / REBUILD_DONE).read_bytes())
    assert done["absent"] == [[TRANSACTION_STATE, 0]]
