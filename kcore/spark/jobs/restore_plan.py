"""The job `restore-plan`: plans the restore of committed offsets as of a moment, for `kcore offsets apply`."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcore.errors import ConfigError
from kcore.printable import clean
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.frames.folders import folder_state
from kcore.spark.frames.logs import EventLogs, LogSource, logs_at
from kcore.spark.jobs.early_checks import check_places
from kcore.spark.jobs.session import add_folder_argument, add_session_arguments, parse_offsets, session, source_of
from kcore.spark.restore.plan import COMPACTED, DAMAGED, REFUSE, WHOLE, Checked, Plan, is_csv
from kcore.spark.restore.planning import CommittedAsOf, counts, make_rows
from kcore.spark.restore.target import by_group, look, open_target
from kcore.spark.state.absent import PlacedId, absent_partitions
from kcore.spark.state.rebuild_report import before_all, beyond_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kcore.node._sync.node import Node

Key = tuple[str, str, int]

COMPACTED_REMARK = "compacted since that time: offsets that were deleted there may be missing"
DAMAGED_REMARK = "parts of their logs are missing: committed offsets may be missing or outdated"


def committed_as_of(
    spark: SparkSession,
    path: LogSource | EventLogs,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    groups: Collection[str] = (),
) -> tuple[list[CommittedAsOf], dict[int, str]]:
    """Returns the offsets that groups had committed as of a moment, as far as the log has their records.

    If compaction has passed the moment, it may have removed the last record of a key before the moment. The offset of
    this key is then unknown. If a record from before the moment still exists, it is the newest one as of the moment,
    so its offset is correct. A key that exists at the end of the log but not at the moment is returned with an unknown
    offset.

    If records are missing for another reason than compaction, a returned offset may be older than the committed one.

    Args:
        spark: a session.
        path: an export, a data folder, or a broker's log folder; or a cluster.
        offsets: (topic, partition) -> the offset before which to stop.
        timestamp_ms: stop before the first record with a later timestamp.
        groups: ids of the groups to return; empty: all groups.

    Returns:
        A pair: the offsets, and the history of each incomplete partition of the log, `COMPACTED` or `DAMAGED`. If an
        offset of these partitions was deleted after the moment, the result may lack it. Missing partitions count as
        damaged.
    """
    topics = (CONSUMER_OFFSETS,)
    logs = logs_at(spark, path)
    state = folder_state(spark, logs, topics=topics, offsets=offsets, timestamp_ms=timestamp_ms)
    by_key, incomplete, ids = _offsets(state, groups)
    if incomplete:
        at_end, _, _ = _offsets(folder_state(spark, logs, topics=topics, partitions=incomplete), groups, incomplete)
        for key in at_end.keys() - by_key.keys():
            by_key[key] = CommittedAsOf(*key, None, history=at_end[key].history)
    # In a whole history, an offset that existed only in an open transaction was not committed.
    committed = [offset for _, offset in sorted(by_key.items()) if offset.offset is not None or offset.history != WHOLE]
    present = {part.partition for part in logs.parts() if part.topic == CONSUMER_OFFSETS}
    for absent in absent_partitions({CONSUMER_OFFSETS: present}, ids):
        incomplete |= dict.fromkeys(absent.partitions, DAMAGED)
    return committed, incomplete


def _offsets(
    state: DataFrame, groups: Collection[str], histories: Mapping[int, str] | None = None
) -> tuple[dict[Key, CommittedAsOf], dict[int, str], set[PlacedId]]:
    """Returns three values: the offsets by key, the histories of incomplete partitions by number, and the groups with
    their partitions.

    For a partition whose only offset is in an open transaction, the offset is None.

    Args:
        state: the result of `folder_state`.
        groups: ids of the groups to return; empty: all groups.
        histories: the histories to use; None: the histories in the state.
    """
    of_groups = state["table"] == "offsets"
    if groups:
        of_groups &= state["offsets.group_id"].isin(*groups)
    rows = state.where(of_groups | (state["table"] == "partitions")).select("table", "offsets", "partitions").collect()
    incomplete = {
        row["coordinator_partition"]: DAMAGED if row["lost"] else COMPACTED
        for row in (row["partitions"] for row in rows if row["table"] == "partitions")
        if not row["complete"]
    }
    known = incomplete if histories is None else histories
    by_key: dict[Key, CommittedAsOf] = {}
    pending: set[Key] = set()
    ids: set[PlacedId] = set()
    for row in (row["offsets"] for row in rows if row["table"] == "offsets"):
        key = (row["group_id"], row["topic"], row["partition"])
        ids.add(PlacedId(CONSUMER_OFFSETS, row["coordinator_partition"], row["group_id"]))
        history = known.get(row["coordinator_partition"], WHOLE)
        if row["pending"]:
            pending.add(key)
            by_key.setdefault(key, CommittedAsOf(*key, None, history=history))
        else:
            by_key[key] = CommittedAsOf(*key, row["offset"], row["metadata"] or "", row["topic_id"] or "", history)
    return {key: offset._replace(pending=key in pending) for key, offset in by_key.items()}, incomplete, ids


def plan_restore(committed: list[CommittedAsOf], node: Node | None, where: str, *, include_same: bool = False) -> Plan:
    """Returns the plan for restoring committed offsets, checked against a target if there is one.

    Args:
        committed: the offsets from `committed_as_of`.
        node: the target to check against; None: the plan is not checked.
        where: the target's name.
        include_same: True to commit offsets again that the target already has.

    Returns:
        A plan without its source and moment.
    """
    if node is None:
        return Plan("", rows=tuple(make_rows(committed, None)))
    target = look(node, by_group((offset.group, offset.place) for offset in committed))
    rows = tuple(make_rows(committed, target, include_same))
    return Plan("", target=Checked(where, target.cluster_id), rows=rows)


@contextmanager
def _target(options: argparse.Namespace) -> Iterator[tuple[Node | None, str]]:
    """Opens the target that the arguments name; yields it with its name."""
    if options.bootstrap is None and options.data is None:
        yield None, ""
        return
    security = None
    if options.command_config is not None:
        from kcore.client import ClientSecurity  # noqa: PLC0415

        security = ClientSecurity.of_file(options.command_config)
    with open_target(options.bootstrap, options.data, security) as node:
        yield node, options.bootstrap or options.data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the job's arguments."""
    add_folder_argument(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the plan, .json or .csv")
    parser.add_argument(
        "--as-of-ms", type=int, metavar="MS", help="plan the offsets as of this time, in ms since the epoch"
    )
    parser.add_argument(
        "--as-of-offset",
        action="append",
        default=[],
        metavar="TOPIC-PARTITION:OFFSET",
        help=f"plan the offsets as of this offset of a partition of {CONSUMER_OFFSETS} (may be repeated)",
    )
    parser.add_argument("--group", action="append", default=[], help="a group (may be repeated); default: all")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="compare the plan with the offsets of this running server"
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="a properties file with the TLS and SASL settings for that server"
    )
    parser.add_argument(
        "--data", metavar="DIR", help="compare the plan with the offsets of this data folder, which no server has open"
    )
    parser.add_argument(
        "--include-same",
        action="store_true",
        help="include offsets that are already correct; committing them renews their retention",
    )
    add_session_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the job in its own session; returns 1 if an offset cannot be restored."""
    is_csv(options.out)
    if options.bootstrap is not None and options.data is not None:
        raise ConfigError("name one target: --bootstrap HOST:PORT or --data DIR")
    if options.command_config is not None and options.bootstrap is None:
        raise ConfigError("--command-config needs --bootstrap HOST:PORT")
    if options.as_of_ms is None and not options.as_of_offset:
        raise ConfigError("set the time of the plan: --as-of-ms MS or --as-of-offset TOPIC-PARTITION:OFFSET")
    offsets = parse_offsets(options.as_of_offset)
    others = sorted({topic for topic, _ in offsets} - {CONSUMER_OFFSETS})
    if others:
        raise ConfigError(
            f"--as-of-offset {others[0]}: only offsets of {CONSUMER_OFFSETS} can define the time of a plan"
        )
    log = source_of(options)
    check_places(options)
    with session(options, "restore-plan") as spark:
        logs = logs_at(spark, log)
        late, _ = beyond_end(logs.parts(), offsets)
        committed, histories = committed_as_of(
            spark, logs, offsets=offsets, timestamp_ms=options.as_of_ms, groups=frozenset(options.group)
        )
    with _target(options) as (brokers, where):
        checked = plan_restore(committed, brokers, where, include_same=options.include_same)
    moment = tuple((*place, at) for place, at in offsets.items())
    compacted, damaged = (
        tuple(partition for partition, history in sorted(histories.items()) if history == kind)
        for kind in (COMPACTED, DAMAGED)
    )
    plan = replace(
        checked,
        source=str(log),
        timestamp_ms=options.as_of_ms,
        offsets=moment,
        compacted=compacted,
        damaged=damaged,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    plan.save(options.out)
    action_counts: Mapping[str, Any] = counts(plan.rows)
    for action, count in action_counts.items():
        print(f"{action:10} {count}")
    for of_kind, remark in ((compacted, COMPACTED_REMARK), (damaged, DAMAGED_REMARK)):
        if of_kind:
            print(f"partitions {', '.join(map(str, of_kind))} of {CONSUMER_OFFSETS}: {remark}")
    empty = [] if options.group else before_all(options.as_of_ms, {"offsets": len(committed)})
    for line in (*late, *empty):
        print(clean(line))
    unknown_groups = sorted(set(options.group) - {row.group for row in plan.rows})
    for group in unknown_groups:
        print(f"group {group!r} had no committed offsets at the time of the plan")
    return 1 if action_counts[REFUSE] or unknown_groups else 0
