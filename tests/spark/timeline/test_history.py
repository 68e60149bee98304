"""Reading a log: commits and their transactions, skipped records, and logs of the engine."""

from __future__ import annotations

from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.spark.events.sources import ServerSource
from kcore.spark.timeline import causes
from kcore.spark.timeline.history import HistoryOptions
from tests import kit
from tests.nodes import node_of
from tests.spark.timeline.logs import SECOND, Log, assigned, brief, history, history_of
from tests.spark.traffic import Sender
from tests.transaction.world import World


def test_commits_follow_their_transactions() -> None:
    """The offset commits of a transaction are listed after its end, with its outcome. Those of an open transaction are
    listed after the end of the log.
    """
    log = Log().commits("g", 0, 1).passes(5)
    log.commits("g", 1, 2, producer_id=9).commits("h", 0, 3, producer_id=8).commits("g", 2, 4, producer_id=7)
    log.ends(9, commit=True).ends(8, commit=False)
    found = [
        (
            row["group_id"],
            row["partition"],
            row["record_offset"],
            row["timestamp_ms"],
            row["committed_offset"],
            row["kind"],
        )
        for row in history(log)["commits"]
    ]
    assert found == [
        ("g", 0, 0, 0, 1, "plain"),
        ("g", 1, 1, 5, 2, "transactional"),
        ("h", 0, 2, 5, 3, "aborted"),
        ("g", 2, 3, 5, 4, "pending"),
    ]


def test_only_the_requested_groups_are_returned() -> None:
    log = Log().generation(1, {"a": [0]}).generation(1, {"a": [0]}, group="h").commits("g", 0, 1).commits("h", 0, 1)
    facts = history(log, HistoryOptions(frozenset({"h"})))
    assert {row["group_id"] for kind in ("rebalances", "commits", "moves") for row in facts[kind]} == {"h"}


def test_undecodable_records_are_counted_and_skipped() -> None:
    """Malformed bytes, unknown types, records without keys and repeated offsets do not change the other events."""
    log = Log().put_raw(b"\x00\x02\x00", b"").put_raw(b"\x7f\x00?", b"?").put_raw(None, b"?").commits("g", 0, 1)
    log.put_raw(b"\x00\x01?", b"\x00\x00").generation(1, {"a": [0]})
    log.rows += log.rows[2:4]
    facts = history(log)
    assert (len(facts["commits"]), len(facts["rebalances"])) == (1, 1)
    assert [(row["records"], row["faults"], row["next_offset"]) for row in facts["logs"]] == [(6, 3, 6)]


def test_an_empty_log_has_a_row_without_offsets() -> None:
    (row,) = history(Log())["logs"]
    assert (row["first_offset"], row["next_offset"], row["last_ms"], row["records"]) == (-1, 0, -1, 0)


def test_all_events_of_an_engines_log_are_found() -> None:
    """Compares all events of a classic group and of a transaction of the real engine, in virtual time."""
    world = World({"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}, {"t": 4})
    sender = Sender(world)
    consumer = {"protocol_type": "consumer", "protocol": "range"}
    member, generation = kit.new_member(sender, "g", **consumer), 0
    generation = sender.send(kit.join("g", member, **consumer)).generation_id
    world.advance(30)  # on top of the millisecond that `Sender` lets pass while a join waits
    sender.send(kit.sync("g", member, generation, {member: assigned([0, 1])}, **consumer))
    sender.send(kit.commit("g", {("t", 0): 5}, member, generation), kit.COMMIT_VERSION)
    world.advance(2 * SECOND)
    sender.send(kit.leave("g", member))
    producer = world.begin("tx", 60_000)
    world.add_offsets("tx", producer, "h")
    world.commit_offset("tx", producer, "h", 8)
    world.advance(700)
    world.end("tx", producer, commit=True)
    world.settle()
    source = ServerSource(node_of(sender))
    logs = {part.topic: list(source.rows(part)) for part in source.parts()}

    groups = history_of(CONSUMER_OFFSETS, logs[CONSUMER_OFFSETS])
    columns = ("group_id", "epoch", "cause", "outcome", "covers", "duration_ms", "joined", "left", "gained", "lost")
    assert brief(groups, *columns) == [
        ("g", 1, causes.JOINED, "completed", "sync", 31, [member], [], 2, 0),
        ("g", 2, causes.LEFT, "emptied", "none", None, [], [member], 0, 2),
    ]
    assert [(row["group_id"], row["kind"]) for row in groups["commits"]] == [("g", "plain"), ("h", "transactional")]
    (transaction,) = history_of(TRANSACTION_STATE, logs[TRANSACTION_STATE])["transactions"]
    assert (transaction["outcome"], transaction["cause"], transaction["topics"]) == (
        "committed",
        None,
        [CONSUMER_OFFSETS],
    )
    assert 700 <= transaction["duration_ms"] < 800
