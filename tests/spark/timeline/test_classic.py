"""Causes of rebalances of classic groups. The job infers them from differences between generations and from session
timeouts.
"""

from __future__ import annotations

import pytest

from kcore.protocol.records.group_metadata import GroupMetadataKey
from kcore.spark.timeline import causes
from tests.spark.timeline.logs import SECOND, SESSION_MS, Log, brief, history

ALONE = {"a": [0, 1, 2, 3]}
BOTH = {"a": [0, 1], "b": [2, 3]}


def test_a_generation_has_all_its_columns() -> None:
    """Compares every column of the second of two generations, and the moved partitions."""
    log = Log().generation(1, ALONE).passes(5 * SECOND).generation(2, BOTH, sync_ms=40)
    facts = history(log)
    assert facts["rebalances"][1] == {
        "coordinator_partition": 0,
        "group_id": "g",
        "group_type": "classic",
        "epoch": 2,
        "previous_epoch": 1,
        "skipped": 0,
        "start_offset": 1,
        "end_offset": 1,
        "start_ms": 4_960,
        "end_ms": 5_000,
        "duration_ms": 40,
        "covers": "sync",
        "outcome": "completed",
        "cause": causes.JOINED,
        "causes": [causes.JOINED],
        "detail": "",
        "members": 2,
        "joined": ["b"],
        "left": [],
        "moved": 2,
        "gained": 2,
        "lost": 2,
        "whole": True,
    }
    moves = [(row["epoch"], row["member_id"], row["gained"], row["lost"]) for row in facts["moves"]]
    two, three = {"topic": "t", "partition": 2}, {"topic": "t", "partition": 3}
    every = [{"topic": "t", "partition": partition} for partition in range(4)]
    assert moves == [(1, "a", every, []), (2, "a", [], [two, three]), (2, "b", [two, three], [])]


CASES = {
    "a member joined": (Log().generation(1, ALONE).generation(2, BOTH), [causes.JOINED]),
    "gone sooner than a session lasts": (
        Log().generation(1, BOTH).passes(SESSION_MS - 1).generation(2, ALONE),
        [causes.LEFT],
    ),
    "gone later": (Log().generation(1, BOTH).passes(SESSION_MS).generation(2, ALONE), [causes.GONE]),
    "gone later, but it committed": (
        Log().generation(1, BOTH).passes(60 * SECOND).commits("g", 3, 7).passes(SECOND).generation(2, ALONE),
        [causes.LEFT],
    ),
    "gone later, and others committed": (
        Log().generation(1, BOTH).passes(60 * SECOND).commits("g", 0, 7).passes(SECOND).generation(2, ALONE),
        [causes.GONE],
    ),
    "a commit before the generation is another's": (
        Log()
        .generation(1, ALONE)
        .commits("g", 3, 7)
        .passes(1)
        .generation(2, BOTH)
        .passes(SESSION_MS)
        .generation(3, ALONE),
        [causes.GONE],
    ),
    "one joined, one left": (
        Log().generation(1, {"a": [0], "b": [1]}).passes(SECOND).generation(2, {"a": [0], "c": [1]}),
        [causes.LEFT, causes.JOINED],
    ),
    "all members left": (Log().generation(1, ALONE).passes(SECOND).generation(2, {}), [causes.LEFT]),
    "a topic grew": (Log().generation(1, BOTH).generation(2, {"a": [0, 1, 2], "b": [3, 4, 5]}), [causes.TOPICS]),
    "a topic shrank away": (Log().generation(1, BOTH).generation(2, {"a": [0], "b": [2]}), [causes.TOPICS]),
    "another subscription": (
        Log().generation(1, BOTH).generation(2, BOTH, topics={"a": ["t", "u"]}),
        [causes.SUBSCRIPTION],
    ),
    "another assignor": (Log().generation(1, BOTH).generation(2, BOTH, protocol="sticky"), [causes.ASSIGNOR]),
    "another leader": (Log().generation(1, BOTH).generation(2, BOTH, leader="b"), [causes.LEADER]),
    "no difference in the log": (Log().generation(1, BOTH).generation(2, BOTH), [causes.UNKNOWN]),
    "a cooperative follow-up": (
        Log()
        .generation(1, ALONE, protocol="cooperative-sticky")
        .generation(2, {"a": [0, 1], "b": []}, protocol="cooperative-sticky")
        .generation(3, BOTH, protocol="cooperative-sticky"),
        [causes.FOLLOW_UP],
    ),
    "a static member returned as another process": (
        Log()
        .generation(1, BOTH, instances={"b": "i"})
        .generation(2, {"a": [0, 1], "b2": [2, 3]}, instances={"b2": "i"}),
        [causes.REPLACED],
    ),
    "opaque assignments": (Log().generation(1, ALONE, opaque=True).generation(2, BOTH, opaque=True), [causes.JOINED]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_records_of_a_generation_determine_its_cause(case: str) -> None:
    log, expected = CASES[case]
    last = history(log)["rebalances"][-1]
    assert (sorted(last["causes"]), last["cause"], last["whole"]) == (
        sorted(expected),
        min(expected, key=list(causes.CAUSES).index),
        True,
    )
    assert set(expected) <= causes.CAUSES.keys()


def test_unknown_durations_are_null() -> None:
    """The duration is null for an empty generation, which has no sync phase. Moved partitions are unknown if the
    assignments are in an unknown protocol.
    """
    log = Log().generation(0, {}).generation(1, ALONE, opaque=True).passes(SECOND).generation(2, {})
    columns = ("epoch", "previous_epoch", "duration_ms", "covers", "outcome", "moved", "members")
    assert brief(history(log), *columns) == [
        (1, 0, 0, "sync", "completed", None, 1),
        (2, 1, None, "none", "emptied", None, 0),
    ]


def test_a_static_member_is_replaced_without_a_rebalance() -> None:
    """The generation stays and no partition moves, because the partitions belong to the instance."""
    log = Log().generation(1, BOTH, instances={"b": "i"})
    log.generation(1, {"a": [0, 1], "b2": [2, 3]}, instances={"b2": "i"}).generation(1, BOTH, instances={"b": "i"})
    columns = ("epoch", "outcome", "cause", "detail", "moved", "gained", "joined", "left")
    replaced = (1, "replaced", causes.REPLACED, "a new process for i", 0, 0, [], [])
    assert brief(history(log), *columns)[1:] == [replaced, replaced]


def test_generations_without_a_record_are_counted() -> None:
    """A join phase that never completed leaves no record, but a gap in the generation numbers."""
    log = Log().generation(1, ALONE).generation(4, BOTH)
    assert brief(history(log), "epoch", "skipped", "cause", "detail")[1:] == [
        (4, 2, causes.JOINED, "2 earlier generations never completed")
    ]


def test_compacted_log_is_marked_incomplete() -> None:
    """The first members are unknown. From the compaction offset on, the history is complete."""
    log = Log().loses(7).generation(5, ALONE).passes(SECOND).generation(6, BOTH).passes(SECOND).generation(7, ALONE)
    facts = history(log, cleaned_to=8)
    assert brief(facts, "epoch", "whole", "cause", "detail", "joined") == [
        (5, False, causes.UNKNOWN, "earlier records are not in the log", []),
        (6, True, causes.JOINED, "", ["b"]),
        (7, True, causes.LEFT, "b was a member for 1000 ms (session timeout 10000 ms)", []),
    ]
    (row,) = facts["logs"]
    assert (row["first_offset"], row["whole_from_offset"], row["whole_from_ms"]) == (7, 8, 1_000)


def test_a_group_that_was_deleted_begins_with_a_new_history() -> None:
    log = Log().generation(9, ALONE).put(GroupMetadataKey(group="g"), None).passes(1).generation(1, ALONE)
    assert brief(history(log), "epoch", "previous_epoch", "cause") == [
        (9, None, causes.JOINED),
        (1, None, causes.JOINED),
    ]


def test_missing_state_timestamp_excludes_no_cause() -> None:
    """Records of versions before 2 do not contain the time at which the group's state began. The job still infers the
    cause of the rebalance.
    """
    log = Log()
    log.now_ms = -1
    log.generation(1, BOTH)
    log.generation(2, ALONE)
    last = history(log)["rebalances"][-1]
    assert (last["cause"], last["covers"]) == (causes.GONE, "none")
