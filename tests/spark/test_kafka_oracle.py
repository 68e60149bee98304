"""The rebuild of a real broker's logs equals the broker's API responses at every recorded moment."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kcore.spark.events.segments import SegmentPartition, find_partitions, read_rows
from kcore.spark.state.rebuild import END, AsOf, Rebuilt, rebuild
from kcore.spark.state.tables import table_rows
from tests.seeds import first_of
from tests.spark import oracle

Oracle = dict[str, dict[str, list[dict[str, Any]]]]


def rebuilt(part: SegmentPartition, as_of: AsOf = END) -> Rebuilt:
    faults: list[Any] = []
    found = rebuild(
        part.topic, part.partition, read_rows(part, on_fault=faults.append), as_of, active_offset=part.active_offset
    )
    assert not faults
    return found


def tables_of(results: list[Rebuilt]) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        for table, row in table_rows(result.state, result.cut):
            tables[table].append(row)
    return tables


@pytest.mark.parametrize("moment", oracle.MOMENTS)
def test_each_moment_equals_the_brokers_responses(kafka_logs: Path, kafka_oracle: Oracle, moment: str) -> None:
    """Compares all fields of every group, member, offset, transaction, producer and share partition."""
    responses = kafka_oracle[moment]
    tables = tables_of([rebuilt(part) for part in find_partitions(kafka_logs / moment)])
    expected = oracle.expected(responses)
    assert len(expected) > 4_000
    assert oracle.differences(expected, oracle.rebuilt(tables, responses["topic"])) == []
    assert tables["faults"] == []
    assert all(row["complete"] for row in tables["partitions"])


def true_completeness(kafka_oracle: Oracle, earlier: str, later: str) -> dict[tuple[str, int], bool]:
    """Returns, for each partition, True if the later copy of its log still contains the earlier state: it was not
    compacted beyond the end of the earlier copy.
    """
    cleaned = {(one["topic"], one["partition"]): one for one in kafka_oracle[later]["partition"]}
    return {
        (one["topic"], one["partition"]): cleaned[one["topic"], one["partition"]]["cleaned_to"]
        <= one["last_stable_offset"]
        for one in kafka_oracle[earlier]["partition"]
    }


@pytest.mark.parametrize("earlier", first_of(oracle.MOMENTS[:3], 1))
def test_later_log_gives_earlier_state_or_reports_loss(kafka_logs: Path, kafka_oracle: Oracle, earlier: str) -> None:
    """A job rebuilds an earlier state from a later copy of the log.

    For each partition, the state equals the broker's state at that moment, or the job reports the partition as
    incomplete.
    """
    responses = kafka_oracle[earlier]
    ends = {(one["topic"], one["partition"]): one["log_end_offset"] for one in responses["partition"]}
    expected = oracle.expected(responses)
    then = {part[:2]: rebuilt(part) for part in find_partitions(kafka_logs / earlier)}
    compared = 0
    for later in {oracle.MOMENTS[oracle.MOMENTS.index(earlier) + 1], oracle.MOMENTS[-1]}:
        possible = true_completeness(kafka_oracle, earlier, later)
        for part in find_partitions(kafka_logs / later):
            where = part[:2]
            result = rebuilt(part, AsOf(offset=ends[where]))
            tables = tables_of([result])
            (log,) = tables["partitions"]
            if not log["complete"]:
                continue
            assert possible[where], f"{where} of {later} does not hold the state of {earlier}"
            compared += 1
            before = tables_of([then[where]])
            for name in tables.keys() | before.keys():
                if name != "partitions":
                    assert tables[name] == before[name], (where, name)
            assert (log["next_offset"], log["last_stable_offset"]) == expected["log", *where]
    assert compared >= 5  # transaction logs, most of which were never compacted


def test_a_cut_by_time_is_the_cut_by_offset(kafka_logs: Path, kafka_oracle: Oracle) -> None:
    """A rebuild up to the time at which the logs were copied ends at the same offset as a rebuild up to the recorded
    end offsets.
    """
    responses = kafka_oracle["moment-3"]
    ends = {(one["topic"], one["partition"]): one["log_end_offset"] for one in responses["partition"]}
    (moment,) = responses["moment"]
    for part in find_partitions(kafka_logs / "moment-4"):
        at_time, at_offset = AsOf(timestamp_ms=moment["started_ms"]), AsOf(offset=ends[part[:2]])
        first_beyond = [next(row.offset for row in read_rows(part) if a.excludes(row)) for a in (at_time, at_offset)]
        assert first_beyond[0] == first_beyond[1]


def test_compaction_is_found_in_the_log_itself(kafka_logs: Path, kafka_oracle: Oracle) -> None:
    """The job infers from a log up to which offset it was compacted. This offset is never below the broker's checkpoint
    and, in a log with gaps, less than 50 offsets above it.
    """
    for moment in ("moment-1", "moment-4"):
        checkpoints = {(one["topic"], one["partition"]): one for one in kafka_oracle[moment]["partition"]}
        for part in find_partitions(kafka_logs / moment):
            result = rebuilt(part)
            found = result.state.completeness.cleaned_to
            truth = checkpoints[part[:2]]
            assert found is not None
            assert found >= truth["cleaned_to"]
            if result.state.completeness.gaps and part.topic != "__share_group_state":
                assert found - truth["cleaned_to"] < 50


def test_a_compaction_checkpoint_beside_the_segments_is_read(kafka_logs: Path, tmp_path: Path) -> None:
    source = kafka_logs / "moment-4"
    for name in ("__consumer_offsets-0", "__transaction_state-0"):
        (tmp_path / name).symlink_to(source / name)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 41117\n")
    first, second = find_partitions(tmp_path)
    assert (first.checkpoint, second.checkpoint) == (41117, None)
