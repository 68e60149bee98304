"""The plan of one simulation of a cluster, drawn from one seed."""

from __future__ import annotations

import random
from typing import Any, Final

from tools.simulate.plan import NODE_SETTINGS, ClientPlan, Fault, Plan, TopicPlan

CLUSTER_FAULTS: Final = (
    "kill node",
    "pause node",
    "cut store",
    "store outage",
    "unknown outcomes",
    "slow store",
    "drain node",
    "roll node",
    "roll nodes",
    "cut peers",
    "cut all",
    "restart client",
    "roll clients",
)


class _Draw:
    """A builder of a random plan for a cluster."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(f"{seed}/cluster")
        settings = NODE_SETTINGS | {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
        self.plan = Plan(seed, store="cluster", settings=settings)

    def add(self, kind: str, name: str, options: dict[str, Any]) -> None:
        start_ms = self.choice.choice([0, self.choice.randrange(3_000), self.choice.randrange(30_000)])
        self.plan.clients.append(ClientPlan(kind, name, options, start_ms))

    def nodes(self) -> None:
        choice, plan = self.choice, self.plan
        plan.nodes = choice.choice([2, 3, 3, 5])
        plan.trouble_ms = choice.choice([20_000, 40_000, 60_000])
        plan.round_ms = choice.choice([0, 1, 5])
        plan.background = choice.choice([0.0, 0.5, 1.0])
        plan.weather = {
            "max_delay_ms": choice.choice([0, 3, 30]),
            "spike": choice.choice([0.0, 0.01, 0.05]),
            "spike_ms": choice.choice([100, 2_000]),
            "cut": choice.choice([0.0, 0.0, 0.005]),
        }
        plan.topics["orders"] = TopicPlan(choice.choice([2, 4]))

    def clients(self) -> None:
        choice = self.choice
        partitions = self.plan.topics["orders"].partitions
        implicit = choice.random() < 0.6
        interval_ms = choice.choice([100, 500])
        for number in range(choice.choice([1, 2])):
            options = {"topic": "orders", "partitions": partitions, "interval_ms": interval_ms, "burst": 3}
            self.add("producer", f"producer{number}", options)
        for number in range(choice.choice([1, 2])):
            protocol, assignor = choice.choice(
                [("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", "")]
            )
            for member in range(choice.choice([1, 2, 3])):
                self.add("member", f"member{number}{member}", self._member(number, protocol, assignor or "range"))
        if choice.random() < 0.6:
            for number in range(choice.choice([1, 2])):
                options = {"topic": "orders", "partitions": partitions, "implicit": implicit, "aborts": 0.3}
                self.add("transactional", f"writer{number}", options | {"timeout_s": choice.choice([5, 20])})
        if choice.random() < 0.6:
            self.plan.topics["copies"] = TopicPlan(2)
            copy = {"topic": "copies", "partitions": 2, "implicit": implicit, "aborts": choice.choice([0, 0.3])}
            copy |= {"source": "orders", "source_partitions": partitions, "group": "copies", "identity": "copier"}
            for number in range(choice.choice([1, 2])):
                self.add("transactional", f"copier{number}", copy)
        if choice.random() < 0.3:
            options = {"topic": "orders", "partitions": partitions, "implicit": implicit, "interval_ms": 3_000}
            self.add("abandoner", "abandoner", options)
        if choice.random() < 0.4:
            for number in range(choice.choice([1, 2])):
                options = {"group": "streams", "subtopologies": {"first": "orders"}, "closing_ms": 400}
                self.add("streams", f"streams{number}", options)

    def _member(self, number: int, protocol: str, assignor: str) -> dict[str, Any]:
        choice = self.choice
        return {
            "group": f"group{number}",
            "topics": ["orders"],
            "protocol": protocol,
            "assignors": [assignor],
            "auto_commit_ms": choice.choice([None, 500, 2_000]),
            "read_committed": choice.random() < 0.7,
            "listener_ms": choice.choice([10, 300]),
        }

    def faults(self) -> None:
        choice, plan = self.choice, self.plan
        for kind in CLUSTER_FAULTS:
            if choice.random() < 0.4:
                for _ in range(choice.choice([1, 2, 4])):
                    plan.faults.append(Fault(choice.randrange(500, plan.trouble_ms), kind, choice.randrange(1 << 30)))
        plan.faults.sort(key=lambda fault: fault.at_ms)


def draw_cluster_plan(seed: int) -> Plan:
    """Returns the random plan for a cluster that a seed determines."""
    draw = _Draw(seed)
    draw.nodes()
    draw.clients()
    draw.faults()
    return draw.plan
