"""Metrics of topics, partitions, transactions, fetch sessions, compaction, quotas and authentications."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kcore.broker.data.client_quotas import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, ClientQuotas
from kcore.broker.metadata.topics import Topics
from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.metrics import SLICE_LINES
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.runtime.api import RequestContext
from kcore.server import data_totals
from kcore.server.data_metrics import DATA_METRICS
from kcore.server.data_totals import DataTotals, count_data
from tests.kit import batch, fetch, make_topic, produce
from tests.observability.watched import watched
from tests.transaction.world import World

PRODUCE_VERSION = 9
FETCH_VERSION = 12
OF_TOTALS = frozenset({"kcore_open_transactions", "kcore_metrics_omitted"})


def read(name: str, engine: Any) -> dict[tuple[str, ...], float]:
    """Returns the values of one metric by labels, read from an engine without a server."""
    (metric,) = [each for each in DATA_METRICS if each.name == name]
    return dict(metric.collect(SimpleNamespace(engine=engine, data=totals(engine) if name in OF_TOTALS else None)))


def totals(engine: Any, pause: Callable[[int], None] = lambda _: None) -> DataTotals:
    """Counts the topics and partitions of an engine in slices. After slice number n, calls `pause(n)`."""
    work, count = count_data(engine), 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: DataTotals = done.value
            return found
        count += 1
        pause(count)


def test_records_and_bytes_are_counted_by_topic() -> None:
    """The counters include each produced and each fetched record with its bytes, by topic. A refused batch does not
    count.
    """
    with watched() as node, node.live.connect() as client:
        make_topic(client, "t", 2)
        make_topic(client, "u")
        first, second = batch([b"one", b"two"]), batch([b"three"])
        for records in (first, second):
            client.send(produce("t", records), PRODUCE_VERSION)
        refused = client.send(produce("t", first[:-1] + b"?"), PRODUCE_VERSION)
        assert refused.responses[0].partition_responses[0].error_code == 2, "CORRUPT_MESSAGE"
        for offset in (0, 2):
            client.send(fetch("t", offset), FETCH_VERSION)
        found = node.samples()
        one, all_bytes = len(second), len(first) + len(second)
        assert {labels: [found["kcore_topic_" + name, labels] for name in TRAFFIC] for labels in [("t",), ("u",)]} == {
            ("t",): [3, all_bytes, 4, all_bytes + one],
            ("u",): [0, 0, 0, 0],
        }
        totals = [found[name, ()] for name in TOTALS]
        assert totals == [3, all_bytes, 4, all_bytes + one]
        client.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000), 6)
        found = node.samples()
        assert {labels for name, labels in found if name == "kcore_topic_sent_bytes_total"} == {("u",)}
        assert [found[name, ()] for name in TOTALS] == totals, "the totals include deleted topics"


TRAFFIC = ("received_records_total", "received_bytes_total", "sent_records_total", "sent_bytes_total")
TOTALS = (
    "kcore_received_records_total",
    "kcore_received_record_bytes_total",
    "kcore_sent_records_total",
    "kcore_sent_record_bytes_total",
)


def test_a_fetch_that_waits_counts_only_its_response() -> None:
    """A parked fetch reads the log again whenever records arrive. The metrics count only the bytes of its response."""
    with watched() as node, node.live.connect() as producer, node.live.raw() as consumer:
        make_topic(producer, "t")
        request = fetch("t", 0, wait_ms=20_000)
        request.min_bytes = 150
        consumer.send(consumer.request(request, FETCH_VERSION))
        records = batch([b"x" * 30])
        for _ in range(2):
            producer.send(produce("t", records), PRODUCE_VERSION)
        assert consumer.frame() is not None
        found = node.samples()
        assert found["kcore_topic_sent_records_total", ("t",)] == 2
        assert found["kcore_topic_sent_bytes_total", ("t",)] == 2 * len(records)


def test_offsets_of_partitions_are_metrics() -> None:
    with watched({"kcore.metrics.max.partitions": "100"}) as node, node.live.connect() as client:
        make_topic(client, "t", 2)
        client.send(produce("t", batch([b"a", b"b", b"c"]), 1), PRODUCE_VERSION)
        found = node.samples()
        values = {
            number: [found[f"kcore_partition_{name}", ("t", number)] for name in OFFSETS] for number in ("0", "1")
        }
        assert values == {"0": [0, 0, 0], "1": [0, 3, 0]}
        assert found["kcore_partition_log_end_offset", ("__consumer_offsets", "2")] == 0
        assert found["kcore_metrics_omitted", ("partition",)] == 0


OFFSETS = ("log_start_offset", "log_end_offset", "last_stable_offset_lag")


def test_the_number_of_series_is_bounded() -> None:
    """Only the oldest topics and partitions have series of their own. The metric `kcore_metrics_omitted` has the number
    of all others.
    """
    with watched({"kcore.metrics.max.partitions": "5"}) as node, node.live.connect() as client:
        for name in ("a", "b", "c", "d", "e", "f", "g"):
            make_topic(client, name, 2)
        found = node.samples()
        series = [labels for name, labels in found if name == "kcore_partition_log_end_offset"]
        assert series == [("__consumer_offsets", "0"), ("__consumer_offsets", "1"), ("__consumer_offsets", "2"),
                          ("a", "0"), ("a", "1")]  # fmt: skip
        assert [labels for name, labels in found if name == "kcore_topic_sent_bytes_total"] == [
            ("a",), ("b",), ("c",), ("d",), ("e",),
        ]  # fmt: skip
        assert found["kcore_metrics_omitted", ("partition",)] == 12
        assert found["kcore_metrics_omitted", ("topic",)] == 2


def test_a_scrape_with_many_series_is_made_in_slices() -> None:
    """A slice renders a bounded number of lines. The deletion of a topic between two slices causes no error."""
    with watched() as node, node.live.connect() as client:
        make_topic(client, "t", 900)
        sizes: list[int] = []

        def scrape() -> str:
            work = node.http.observer.scrape()
            count = 0
            while True:
                try:
                    next(work)
                except StopIteration as done:
                    sizes.append(count)
                    return b"".join(done.value).decode()
                count += 1
                if count == 4:
                    partitions = node.live.engine.partitions
                    partitions.on_topic_deleted(SimpleNamespace(topic_id=partitions.names["t"].topic_id, name="t"))  # type: ignore[arg-type]

        text = node.live.call(scrape)
        assert text.count("kcore_partition_log_start_offset{") == 903
        assert sizes[0] >= len(text.splitlines()) // SLICE_LINES - 1 >= 3


def test_topics_are_counted_in_slices_and_once_if_they_are_deleted_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are counted in slices. A topic that is deleted between two slices counts once: if it counted twice, the
    total would decrease at the next scrape.
    """
    monkeypatch.setattr(data_totals, "SLICE_ITEMS", 10)
    with watched() as node, node.live.connect() as client:
        for name in ("a", "b", "c"):
            make_topic(client, name, 20)
            client.send(produce(name, batch([b"one"])), PRODUCE_VERSION)
        partitions = node.live.engine.partitions
        pauses: list[int] = []

        def pause(number: int) -> None:
            pauses.append(number)
            for name in ("b", "c") if number == 5 else ():
                topic = SimpleNamespace(topic_id=partitions.names[name].topic_id, name=name)
                partitions.on_topic_deleted(topic)  # type: ignore[arg-type]

        before = node.live.call(lambda: totals(node.live.engine, pause))
        after = node.live.call(lambda: totals(node.live.engine))
    assert (before.topics, before.traffic.received_records) == (3, 3)
    assert len(pauses) >= 6, "there is a pause after ten partitions, or after the topic that has the tenth"
    assert (after.topics, after.partitions, after.traffic.received_records) == (1, 23, 3)


def test_transactions_are_counted_by_state_and_result() -> None:
    world = World({"transaction.max.timeout.ms": 100_000})
    engine = world.engine
    for tid in ("commits", "aborts", "stays", "idle"):
        who = world.begin(tid)
        if tid != "idle":
            world.add(tid, who, [("t", 0)])
            world.produce(tid, who, 0, b"x")
        if tid in {"commits", "aborts"}:
            world.end(tid, who, tid == "commits")
    ids = {("Empty",): 1, ("Ongoing",): 1, ("CompleteCommit",): 1, ("CompleteAbort",): 1}
    none = {("PrepareCommit",): 0, ("PrepareAbort",): 0}
    assert read("kcore_transactional_ids", engine) == {**ids, **none}
    assert read("kcore_transactions_ended_total", engine) == {("commit",): 1, ("abort",): 1}
    assert read("kcore_open_transactions", engine) == {(): 1}
    lag = read("kcore_partition_last_stable_offset_lag", engine)
    assert (lag["t", "0"], lag["t", "1"]) == (1, 0)
    world.restart()
    assert read("kcore_transactional_ids", world.engine) == {**ids, **none}, "a load counts the ids a second time"
    world.advance(70_000)
    world.settle()
    assert read("kcore_transaction_timeouts_total", world.engine) == {(): 1}
    assert read("kcore_transactions_ended_total", world.engine) == {("commit",): 0, ("abort",): 1}
    expired = {("Empty",): 1, ("Ongoing",): 0, ("CompleteCommit",): 1, ("CompleteAbort",): 2}
    assert read("kcore_transactional_ids", world.engine) == {**expired, **none}
    assert read("kcore_open_transactions", world.engine) == {(): 0}


def test_a_transaction_without_coordinator_becomes_late() -> None:
    """A transaction stays open because its coordinator is missing. Five minutes after the largest transaction timeout,
    the metric of late transactions counts its partition.
    """
    world = World({"transaction.max.timeout.ms": 100_000})
    who = world.begin("hangs")
    world.add("hangs", who, [("t", 1)])
    world.produce("hangs", who, 0, b"x", index=1)
    partition = world.engine.partitions.get("t", 1)
    assert partition is not None
    transactions = world.engine.transactions.shards
    assert transactions is not None
    for shard in transactions:
        shard.unload()
    world.clock.advance(400_000)
    assert totals(world.engine).late_partitions == 0
    world.clock.advance(1)
    assert totals(world.engine).late_partitions == 1


def test_fetch_sessions_and_evictions_are_counted() -> None:
    settings = {"max.incremental.fetch.session.cache.slots": "1"}
    with watched(settings) as node, node.live.connect() as one:
        make_topic(one, "t", 2)
        request = fetch("t")
        request.session_epoch = 0
        assert one.send(request, FETCH_VERSION).session_id > 0
        found = node.samples()
        assert found["kcore_fetch_sessions", ()] == 1
        assert found["kcore_fetch_session_partitions", ()] == 1
        assert found["kcore_fetch_session_evictions_total", ()] == 0


@pytest.mark.parametrize("due", [False, True])
def test_compaction_is_observed(due: bool) -> None:
    """Before a pass, the whole log of a coordinator counts as not compacted; after the pass, none of it."""
    world = World({"kcore.snapshot.min.bytes": 1} if due else {})
    engine = world.engine
    cleaner = engine.housekeeping.cleaner
    for _ in range(5):
        world.begin("one id")
    assert read("kcore_cleaner_passes_total", engine) == {(): 0}
    engine.clock.advance(1_500)
    assert read("kcore_cleaner_time_since_last_run_seconds", engine) == {(): 1.5}
    engine.now.update()
    for _ in cleaner.run():
        engine.commit()
    assert read("kcore_cleaner_time_since_last_run_seconds", engine) == {(): 0.0}
    assert read("kcore_cleaner_passes_total", engine) == {(): 1 if due else 0}
    ratio = read("kcore_cleaner_max_dirty_ratio", engine)[()]
    assert ratio < 1 if due else ratio == 1
    assert read("kcore_cleaner_failures_total", engine) == {(): 0}


def test_throttled_requests_are_counted_by_quota() -> None:
    topics, clock = Topics(), ManualClock()
    topics.image.put_quota((("client-id", "c"),), PRODUCER_BYTE_RATE, 10_000)
    quotas = ClientQuotas(topics, Now(clock), Config.of())
    context = RequestContext(9, "c", connection_id=7)
    assert quotas.charge(PRODUCER_BYTE_RATE, context, 100_000) == 0
    assert quotas.charge(PRODUCER_BYTE_RATE, context, 50_000) == 5_000
    assert quotas.throttle(CONTROLLER_MUTATION_RATE, context, 200) == 200
    engine: Any = SimpleNamespace(client_quotas=quotas)
    rest = {("consumer_byte_rate",): 0, ("request_percentage",): 0, ("connection_creation_rate",): 0}
    assert read("kcore_throttled_requests_total", engine) == {
        ("producer_byte_rate",): 1, ("controller_mutation_rate",): 1, **rest,
    }  # fmt: skip
    assert read("kcore_throttle_time_seconds_total", engine) == {
        ("producer_byte_rate",): 5.0, ("controller_mutation_rate",): 0.2, **rest,
    }  # fmt: skip
