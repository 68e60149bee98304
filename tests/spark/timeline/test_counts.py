"""The job finds gaps between commits and rebalance storms in one pass over the log. A simple search finds the same
ones.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kcore.spark.timeline.frames import Bounds, commit_gaps, storms
from tests.seeds import SEED

pytestmark = pytest.mark.spark

REBALANCES = (
    "group_id string, start_ms bigint, start_offset bigint, outcome string, cause string, joined array<string>, "
    "`left` array<string>, moved int, whole boolean"
)
COMMITS = (
    "coordinator_partition int, group_id string, topic string, timestamp_ms bigint, record_offset bigint, "
    "kind string, whole boolean"
)
BOUNDS = Bounds(1_000, gap_ms=40, storm_count=3, storm_window_ms=12)
END_MS = 2_000


def made(chance: random.Random) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Returns rebalances and commits of some groups, many of them at the same moment."""
    rebalances = [
        (
            f"g{chance.randrange(3)}",
            chance.randrange(END_MS) // 3 * 3,
            offset,
            chance.choice(["done", "done", "superseded", "replaced"]),
            chance.choice(["joined", "left"]),
            ["m"] * chance.randrange(3),
            ["m"] * chance.randrange(3),
            chance.choice([None, 0, 4]),
            chance.random() < 0.9,
        )
        for offset in range(400)
    ]
    commits = [
        (
            0,
            f"g{chance.randrange(3)}",
            f"t{chance.randrange(2)}",
            chance.randrange(END_MS) // 3 * 3,
            offset,
            chance.choice(["plain", "plain", "transactional", "aborted"]),
            chance.random() < 0.9,
        )
        for offset in range(150)
    ]
    return rebalances, commits


def each_gap(rebalances: list[tuple[Any, ...]], commits: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    found = []
    for place in {row[:3] for row in commits}:
        counted = [row for row in commits if row[:3] == place and row[5] != "aborted"]
        counted.sort(key=lambda row: row[3:5])
        for row, following in zip(counted, [*counted[1:], None], strict=True):
            to_ms = END_MS if following is None else following[3]
            within = [
                one for one in rebalances if one[0] == place[1] and row[3] <= one[1] <= to_ms and one[3] != "replaced"
            ]
            if to_ms - row[3] >= BOUNDS.gap_ms:
                found.append((*place, row[3], to_ms, to_ms - row[3], following is None, len(within), row[6]))
    return sorted(found)


def each_storm(rebalances: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    found = []
    for group in {row[0] for row in rebalances}:
        own = sorted((row for row in rebalances if row[0] == group and row[3] != "replaced"), key=lambda row: row[1:3])
        spans: list[list[int]] = []
        for first, last in zip(own, own[BOUNDS.storm_count - 1 :], strict=False):
            if last[1] - first[1] <= BOUNDS.storm_window_ms:
                if spans and first[1] <= spans[-1][1]:
                    spans[-1][1] = last[1]
                else:
                    spans.append([first[1], last[1]])
        for from_ms, to_ms in spans:
            within = [row for row in own if from_ms <= row[1] <= to_ms]
            causes = tuple(sorted(Counter(row[4] for row in within).items()))
            sums = (sum(len(row[5]) for row in within), sum(len(row[6]) for row in within))
            moved, superseded = sum(row[7] or 0 for row in within), sum(row[3] == "superseded" for row in within)
            whole = all(row[8] for row in within)
            found.append((group, from_ms, to_ms, len(within), superseded, *sums, moved, causes, whole))
    return sorted(found)


@pytest.mark.seeded
def test_gaps_and_storms_equal_single_counts(spark: Any) -> None:
    seed = SEED
    print("seed", seed)
    rebalances, commits = made(random.Random(seed))
    rebalanced = spark.createDataFrame(rebalances, REBALANCES)
    committed = spark.createDataFrame(commits, COMMITS)
    logs = spark.createDataFrame([(END_MS,)], "last_ms bigint")
    gaps = sorted(map(tuple, commit_gaps(committed, rebalanced, logs, BOUNDS).collect()))
    assert gaps
    assert gaps == each_gap(rebalances, commits)
    found = [
        tuple(tuple(sorted(value.items())) if isinstance(value, dict) else value for value in row)
        for row in storms(rebalanced, BOUNDS).collect()
    ]
    assert found
    assert sorted(found) == each_storm(rebalances)
