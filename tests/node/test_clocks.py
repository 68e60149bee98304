"""Records without a timestamp get the time of the engine's clock, even if this is not the system's clock."""

from __future__ import annotations

import kcore
from kcore.clock import ManualClock

NOW_MS = 1_000_000_000_000


def test_every_way_to_append_uses_the_engines_clock() -> None:
    with kcore.open(clock=ManualClock(NOW_MS)) as node:
        topic = node.topics.create("t", 1)
        topic.append("one")
        topic.append_many(["two", "three"])
        with node.transaction("x") as transaction:
            transaction.append("t", "four")
        with node.producer() as producer:
            producer.append("t", "five")
        records = [(record.value, record.timestamp_ms) for record in topic.read(0, 0)]
    assert records == [(value, NOW_MS) for value in (b"one", b"two", b"three", b"four", b"five")]
