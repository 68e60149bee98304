"""One partition of a stream, without Spark: micro-batches of any size give the same result as one pass over the log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from kcore.errors import KcoreError
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey
from kcore.spark.audit.finding import Finding
from kcore.spark.audit.frames import findings_batch
from kcore.spark.audit.partition import PartitionAudit
from kcore.spark.events.arrow import to_batches
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import SegmentSource
from kcore.spark.state.batch_replay import rebuild_batches
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.state.table_batches import all_tables
from kcore.spark.timeline.causes import GONE, LEFT
from kcore.spark.timeline.event_kinds import kind_batch
from kcore.spark.timeline.history import History, HistoryOptions
from kcore.spark.watch.continued import ANY_OFFSET, ContinuedPartition, Stored
from tests.seeds import SEED
from tests.spark.timeline.test_epochs import SESSION_MS, member_goes, one_member

ABOUT_THE_LOG = ("state/partitions", "state/faults")
"""Tables about the whole log, which are not compared: a micro-batch sees only a part of the log."""

Tables = dict[str, list[str]]


def one_pass(topic: str, partition: int, rows: list[EventRow], hides_control: bool) -> Tables:
    """Rebuilds, decodes and audits all rows at once. Returns the tables of the state, of the history, and of the
    findings.
    """
    found: Tables = {}
    rebuilt = rebuild_batches(topic, partition, to_batches(rows), hides_control=hides_control)
    for table, batch in all_tables([rebuilt]):
        found.setdefault(f"state/{table}", []).extend(map(repr, batch.to_pylist()))
    history = History(topic, partition, HistoryOptions())
    for kind, event in chain.from_iterable(map(history.process, rows)):
        found.setdefault(f"timeline/{kind}", []).extend(map(repr, kind_batch(kind, [event]).to_pylist()))
    audit = PartitionAudit(topic, partition, ANY_OFFSET if hides_control else None)
    for row in rows:
        audit.process(row)
    findings = [one for one in audit.take() if isinstance(one, Finding)]
    if findings:
        found["findings"] = list(map(repr, findings_batch(findings).to_pylist()))
    return found


def in_micro_batches(
    topic: str, partition: int, rows: list[EventRow], hides_control: bool, cuts: list[int]
) -> tuple[Tables, Stored | None]:
    """Returns the tables (the last state, and the rows that all micro-batches added), and the stored state."""
    found: Tables = {}
    stored: Stored | None = None
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        continued = ContinuedPartition(topic, partition, HistoryOptions(), hides_control, stored)
        for batch in to_batches(rows[start:stop]):
            continued.add(batch)
        found = {table: of for table, of in found.items() if not table.startswith("state/")}
        for table, batch in continued.tables():
            found.setdefault(table, []).extend(map(repr, batch.to_pylist()))
        stored = continued.stored()
    return found, stored


def logs_of(folder: Path) -> Iterator[tuple[str, int, list[EventRow]]]:
    source = SegmentSource(folder)
    for part in source.parts():
        if part.topic in COORDINATOR_TOPICS:
            yield part.topic, part.partition, list(source.rows(part))


@pytest.mark.seeded
@pytest.mark.parametrize("moment", ["moment-1", pytest.param("moment-4", marks=pytest.mark.long)])
@pytest.mark.timeout(300)
def test_micro_batches_give_the_result_of_one_pass(kafka_logs: Path, moment: str) -> None:
    """Compares state, rebalances, transactions, deliveries and findings, with and without transaction markers."""
    chance = random.Random(SEED)
    seen = set()
    for topic, partition, rows in logs_of(kafka_logs / moment):
        # Both forms take twice the time: the shorter test has one for each partition.
        for hides_control in (False, True) if moment == "moment-4" else (partition % 2 == 1,):
            read = [row for row in rows if not (hides_control and (row.control or row.batch_only))]
            cuts = sorted(chance.sample(range(1, len(read)), min(4 if moment == "moment-4" else 2, len(read) - 1)))
            expected = one_pass(topic, partition, read, hides_control)
            found, _ = in_micro_batches(topic, partition, read, hides_control, cuts)
            for table in (expected.keys() | found.keys()) - set(ABOUT_THE_LOG):
                one, other = found.get(table, []), expected.get(table, [])
                if table.startswith("state/"):  # in the order of a dictionary
                    one, other = sorted(one), sorted(other)
                assert one == other, (topic, partition, hides_control, cuts, table)
            seen |= expected.keys()
    assert {"state/groups", "state/transactions", "state/share_states", "findings"} <= seen
    assert {"timeline/rebalances", "timeline/transactions", "timeline/deliveries", "timeline/commits"} <= seen


def test_a_stream_of_another_version_is_refused(kafka_logs: Path) -> None:
    source = SegmentSource(kafka_logs / "moment-1" / "__transaction_state-3")
    (part,) = source.parts()
    rows = list(source.rows(part))[:50]
    _, stored = in_micro_batches(part.topic, part.partition, rows, False, [])
    assert stored is not None
    with pytest.raises(KcoreError, match=r"written by kcore 0\.0\.1, .*another output folder"):
        ContinuedPartition(part.topic, part.partition, HistoryOptions(), False, stored._replace(version="0.0.1"))


def test_a_later_run_may_have_another_session_timeout() -> None:
    """The timeout applies to all groups from the next micro-batch on, and not only to new groups."""
    log = one_member()
    known = len(log.rows)
    # The epoch without members ends with the deletion of the group.
    rows = member_goes(log.passes(SESSION_MS - 1)).put(ConsumerGroupMetadataKey(group_id="g"), None).rows
    for options, cause in ((HistoryOptions(None, SESSION_MS), LEFT), (HistoryOptions(), GONE)):
        before = HistoryOptions(None, None if cause == LEFT else SESSION_MS)
        first = ContinuedPartition(CONSUMER_OFFSETS, 0, before, False)
        for batch in to_batches(rows[:known]):
            first.add(batch)
        second = ContinuedPartition(CONSUMER_OFFSETS, 0, options, False, first.stored())
        for batch in to_batches(rows[known:]):
            second.add(batch)
        found = [row for table, batch in second.tables() if table == "timeline/rebalances" for row in batch.to_pylist()]
        assert [row["cause"] for row in found if row["left"]] == [cause]
