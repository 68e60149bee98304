"""A lag monitor for groups of all types: a table of the groups that are behind, and the time to catch up.

    python examples/lag_monitor.py                                on an embedded node, with groups of its own
    python examples/lag_monitor.py HOST:PORT [INTERVAL] [COUNT]   on kcore serve, Apache Kafka or another cluster

If a member owns a partition without a committed offset, the lag includes all records of the partition. So a group that
never commits does not look caught up. A consumer with another `reset` than "earliest" may have fewer records to read.

The monitor measures COUNT times (by default endlessly), every INTERVAL seconds (by default 5). From the second time on,
it also estimates the time to catch up. The exit status is 1 if a group is behind at the end, so that a script can wait
for all groups to catch up.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass

import kcore
from kcore.errors import KafkaError


@dataclass(frozen=True)
class Row:
    """The lag of a group.

    Attributes:
        group_id: the id of the group.
        type: "classic", "consumer", "share" or "streams".
        state: Kafka's name of the group state, for example "Stable".
        lag: the number of records that the group has not processed, in all partitions.
        worst: the partition with the largest lag; None without a lag.
        time_s: the time of the measurement, in seconds of a monotonic clock.
    """

    group_id: str
    type: str
    state: str
    lag: int
    worst: kcore.TopicPartition | None
    time_s: float


def measure(node: kcore.Node) -> list[Row]:
    """Returns the lag of every group, the largest first.

    The number of requests depends on the numbers of brokers and share groups, but not on the number of other groups. A
    cluster may have thousands of them.
    """
    groups = node.groups.list()
    described = node.groups.describe(group.group_id for group in groups)
    committed = node.groups.committed(group.group_id for group in groups if group.type != "share")
    owned = {group_id: uncommitted(described[group_id], offsets) for group_id, offsets in committed.items()}
    starts = node.topics.start_offsets({each for partitions in owned.values() for each in partitions})
    used = {each for offsets in committed.values() for each in offsets}
    ends = node.topics.end_offsets(used.union(starts), "read_uncommitted")
    rows = []
    for group in groups:
        if group.type == "share":
            progress = node.group(group.group_id).share_positions()
            lag = {each: position.lag for each, position in progress.items() if position.lag is not None}
        else:
            positions = {each: row.offset for each, row in committed[group.group_id].items()}
            positions |= {each: starts[each] for each in owned[group.group_id] if each in starts}
            lag = {each: max(0, ends[each] - offset) for each, offset in positions.items() if each in ends}
        worst = max(lag, key=lag.__getitem__) if any(lag.values()) else None
        rows.append(Row(group.group_id, group.type, group.state, sum(lag.values()), worst, time.monotonic()))
    return sorted(rows, key=lambda row: (-row.lag, row.group_id))


def uncommitted(
    group: kcore.GroupDescription | KafkaError, committed: Collection[kcore.TopicPartition]
) -> set[kcore.TopicPartition]:
    """Returns the partitions that members own without a committed offset."""
    if isinstance(group, KafkaError):
        return set()  # for example, the group was deleted since it was listed
    return {partition for member in group.members for partition in member.assignment}.difference(committed)


def forecast(before: Row | None, now: Row) -> str:
    """Describes the time until a group has caught up, from two measurements."""
    if not now.lag:
        return "caught up"
    if before is None:
        return "-"
    done = before.lag - now.lag
    if done <= 0:
        return "falls behind" if done else "no progress"
    return f"{now.lag * (now.time_s - before.time_s) / done:.0f} s"


def show(rows: list[Row], before: dict[str, Row]) -> None:
    """Prints a table."""
    print(f"{'GROUP':<20} {'TYPE':<9} {'STATE':<20} {'LAG':>8}  {'WORST':<20} CAUGHT UP IN")
    for row in rows:
        worst = "-" if row.worst is None else f"{row.worst.topic}-{row.worst.partition}"
        estimate = forecast(before.get(row.group_id), row)
        print(f"{row.group_id:<20} {row.type:<9} {row.state:<20} {row.lag:>8}  {worst:<20} {estimate}", flush=True)


def watch(node: kcore.Node, interval_s: float, count: int | None) -> bool:
    """Shows the lag `count` times, or endlessly. Returns True if a group is behind at the end."""
    before: dict[str, Row] = {}
    for number in itertools.count(1):
        rows = measure(node)
        show(rows, before)
        if number == count:
            break
        before = {row.group_id: row for row in rows}
        time.sleep(interval_s)
    return any(row.lag for row in rows)


def demonstrate(node: kcore.Node) -> None:
    """Shows groups that fall behind and catch up."""
    topic = node.topics.create("orders", 2)
    topic.append_many([str(number) for number in range(100)], partition=0)
    topic.append_many([str(number) for number in range(20)], partition=1)
    node.group("billing").commit({("orders", 0): 40, ("orders", 1): 20})
    node.group("shipping").commit({("orders", 0): 100, ("orders", 1): 20})
    before = measure(node)
    show(before, {})
    topic.append_many([str(number) for number in range(30)], partition=1)
    node.group("billing").commit({("orders", 0): 100})
    after = measure(node)
    for row in after:
        earlier = next(each for each in before if each.group_id == row.group_id)
        print(f"{row.group_id}: lag {earlier.lag}, then {row.lag}")


def main(arguments: list[str]) -> int:
    """Runs the monitor. Returns the exit status."""
    if not arguments:
        with kcore.open() as node:
            demonstrate(node)
        return 0
    interval_s = float(arguments[1]) if len(arguments) > 1 else 5.0
    with kcore.connect(arguments[0]) as node:
        return int(watch(node, interval_s, int(arguments[2]) if len(arguments) > 2 else None))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
