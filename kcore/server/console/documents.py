"""The console's documents about the node, topics and transactions, and the table of all documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final

from kcore.server.console.groups import list_groups, show_group
from kcore.server.console.paging import PAGE_ROWS, Query, Steps, batches, contains, find, name_fields, page_of, shown
from kcore.server.data_metrics import transactional_ids
from kcore.server.data_totals import count_data
from kcore.transaction.states import NAMES
from kcore.version import VERSION

if TYPE_CHECKING:
    from kcore.broker.data.partitions import TopicPartitions
    from kcore.engine import Engine
    from kcore.server.observe import Observer

MAX_TOPICS: Final = 20
"""Maximum number of topics of one transaction that the console shows."""

MAX_LISTED_PARTITIONS: Final = 10_000
"""Maximum number of partitions of a topic for which the list of topics shows the number of records."""

SLICE_PARTITIONS: Final = 2_000
"""Number of partitions that one slice examines."""


def show_node(observer: Observer, query: Query) -> Steps:
    """Returns the document of the node: versions, counts, and totals from which the page computes rates."""
    engine = observer.engine
    counts: dict[str, dict[str, int]] = {}
    for (kind, state), count in observer.group_counts().items():
        counts.setdefault(kind, {})[state] = count
    yield
    data = yield from count_data(engine)
    traffic = data.traffic
    return {
        "version": VERSION,
        "cluster_id": engine.cluster.cluster_id,
        "node_id": engine.config.node_id,
        "uptime_s": round(time.time() - observer.started_s, 3),
        "not_ready": sum(observer.not_ready().values()),
        "groups": counts,
        "topics": data.topics,
        "partitions": data.partitions,
        "transactional_ids": {state: count for (state,), count in transactional_ids(engine)},
        "late_transaction_partitions": data.late_partitions,
        "connections": len(observer.server.connections),
        "requests": sum(count for _, count in observer.server.dispatch.requests()),
        "commits": engine.pipeline.rounds,
        "failed_commits": engine.pipeline.failures,
        "received_records": traffic.received_records,
        "received_bytes": traffic.received_bytes,
        "sent_records": traffic.sent_records,
        "sent_bytes": traffic.sent_bytes,
    }


def list_topics(observer: Observer, query: Query) -> Steps:
    """Lists topics by name, filtered by a text in the name."""
    names = observer.engine.partitions.names
    page, chosen = yield from find(batches(names), contains(query.text("search")), query.page())
    rows = []
    looked_at = 0
    for name in chosen:
        topic = names.get(name)
        if topic is None:
            continue
        rows.append(
            {
                "name": name,
                "internal": topic.internal,
                "partitions": len(topic.partitions),
                "records": _records(topic) if len(topic.partitions) <= MAX_LISTED_PARTITIONS else None,
                "received_bytes": topic.traffic.received_bytes,
                "sent_bytes": topic.traffic.sent_bytes,
            }
        )
        looked_at += len(topic.partitions)
        if looked_at > SLICE_PARTITIONS:
            looked_at = 0
            yield
    return page.document(rows)


def _records(topic: TopicPartitions) -> int:
    """Returns the number of offsets in the logs of a topic, which is at least the number of its records."""
    return sum(each.high_watermark - each.log_start_offset for each in topic.partitions)


def show_topic(observer: Observer, query: Query) -> Steps:
    """Shows one topic and a page of its partitions. Returns None if the topic does not exist."""
    yield
    topic = observer.engine.partitions.names.get(query.text("name"))
    if topic is None:
        return None
    page = page_of(len(topic.partitions), query.page())
    return {
        "name": topic.name,
        "internal": topic.internal,
        "received_records": topic.traffic.received_records,
        "received_bytes": topic.traffic.received_bytes,
        "sent_records": topic.traffic.sent_records,
        "sent_bytes": topic.traffic.sent_bytes,
        "partitions": page.document(
            [
                {
                    "partition": each.index,
                    "start": each.log_start_offset,
                    "end": each.high_watermark,
                    "stable_lag": each.high_watermark - each.last_stable_offset,
                    "producers": len(each.producers.entries),
                    "open_transactions": len(each.producers.open_transactions),
                }
                for each in topic.partitions[page.first : page.first + PAGE_ROWS]
            ]
        ),
    }


def list_transactions(observer: Observer, query: Query) -> Steps:
    """Lists transactional ids, filtered by a text in the id and a state."""
    engine, state = observer.engine, query.text("state")
    has_text = contains(query.text("search"))

    def ids() -> Iterator[list[str]]:
        for shard in list(engine.transactions.shards or ()):
            yield from batches(shard.machine.transactions)

    def keep(transactional_id: str) -> bool:
        if not has_text(transactional_id):
            return False
        if not state:
            return True
        transaction = engine.transactions.get(transactional_id)
        return transaction is not None and NAMES[transaction.state] == state

    page, chosen = yield from find(ids(), keep, query.page())
    rows = []
    looked_at = 0
    for each in chosen:
        row = _transaction(engine, each)
        if row is None:
            continue
        rows.append(row)
        looked_at += row["partitions"]
        if looked_at > SLICE_PARTITIONS:
            looked_at = 0
            yield
    return page.document(rows)


def _transaction(engine: Engine, transactional_id: str) -> dict[str, Any] | None:
    transaction = engine.transactions.get(transactional_id)
    if transaction is None:
        return None
    is_open = bool(transaction.partitions) and transaction.start_ms >= 0
    partitions = transaction.partitions
    return {
        **name_fields(transactional_id),
        "state": NAMES[transaction.state],
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "age_ms": max(engine.clock.wall_ms() - transaction.start_ms, 0) if is_open else None,
        "partitions": sum(map(len, partitions.values())),
        "topics": [shown(name) for name in nsmallest(MAX_TOPICS, partitions)],
    }


DOCUMENTS: Final[dict[str, Callable[[Observer, Query], Steps]]] = {
    "/api/node": show_node,
    "/api/groups": list_groups,
    "/api/group": show_group,
    "/api/topics": list_topics,
    "/api/topic": show_topic,
    "/api/transactions": list_transactions,
}
"""Path -> function that makes the JSON document. The function returns None if the topic or group does not exist."""
