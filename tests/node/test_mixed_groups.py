"""Groups with members of kcore's client and of librdkafka: with eager and cooperative assignors, and with the consumer
protocol.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

import kcore

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "consumer": ({"protocol": "consumer"}, {"group.protocol": "consumer"}),
    "eager": (
        {"protocol": "classic", "assignors": ["range"], "heartbeat_interval": 0.3},
        {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300},
    ),
    "cooperative": (
        {"protocol": "classic", "assignors": ["cooperative-sticky"], "heartbeat_interval": 0.3},
        {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300},
    ),
    "migration": (
        {"protocol": "consumer"},
        {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300},
    ),
}
LIMIT_S = 90.0


def poll_until(consumer: Consumer, condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until_s
        consumer.poll(0.05)


@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize("kind", KINDS)
def test_members_of_both_clients_share_a_group(bootstrap: str, name: str, kind: str, first: str) -> None:
    options, settings = KINDS[kind]
    with kcore.connect(bootstrap) as node:
        node.topics.create(name, 4)
        member = node.group(name).join(name, **options)
        theirs = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "log_level": 0, **settings})

        def owned() -> list[set[int]]:
            return [{each.partition for each in member.assignment}, {each.partition for each in theirs.assignment()}]

        def shared() -> bool:
            mine, other = owned()
            return len(mine) == len(other) == 2 and mine | other == {0, 1, 2, 3}

        try:
            if first == "theirs":
                theirs.subscribe([name])
                poll_until(theirs, lambda: len(owned()[1]) == 4)
                member.start(timeout=0)
            else:
                member.start()
                theirs.subscribe([name])
            # A cooperative member may own its part before it has the response that ends the rebalance.
            poll_until(theirs, lambda: shared() and member.state == "Stable")
            member.commit(dict.fromkeys(member.assignment, 5))
            assert {each.partition for each in node.group(name).committed()} == owned()[0]
            member.close()
            poll_until(theirs, lambda: len(owned()[1]) == 4)
        finally:
            theirs.close()
            member.close()
