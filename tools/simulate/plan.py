"""The plan of one simulation: a random subset of clients, faults and rates, drawn from one seed (swarm testing).

A plan consists of data only. The shrinker removes clients and faults from a plan and saves the result as JSON.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from typing import Any, Final

TROUBLE_MS: Final = 60_000

NODE_SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.record.lock.duration.ms": "15000",
    "group.share.delivery.count.limit": "10",
    "group.share.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
    "offsets.retention.check.interval.ms": "10000",
    "log.retention.check.interval.ms": "3000",
    "group.streams.heartbeat.interval.ms": "2000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}

FAULTS: Final = (
    "kill",
    "power",
    "crash in write",
    "power in write",
    "disk failure",
    "disk full",
    "memory error",
    "interrupt",
    "pause",
    "clock step",
    "cut all",
    "slow reader",
    "slow disk",
    "slow node",
    "read failure",
    "restart client",
    "roll clients",
    "roll protocol",
    "replay",
)


@dataclass(slots=True)
class TopicPlan:
    """A topic that exists from the start.

    Attributes:
        partitions: the number of partitions.
        config: the topic's settings.
    """

    partitions: int
    config: dict[str, str] = field(default_factory=dict)

    @property
    def compacted(self) -> bool:
        """True if compaction may remove records."""
        return self.config.get("cleanup.policy") == "compact"

    @property
    def retention_ms(self) -> int | None:
        """The age in ms from which retention may delete records, or None if it deletes none."""
        value = self.config.get("retention.ms")
        return None if value is None else int(value)


@dataclass(slots=True)
class ClientPlan:
    """A client process.

    Attributes:
        kind: the class of the client; see `tools.simulate.world.KINDS`.
        name: its client id.
        options: the arguments of the class.
        start_ms: the virtual time at which the client starts.
    """

    kind: str
    name: str
    options: dict[str, Any]
    start_ms: int = 0


@dataclass(slots=True)
class Fault:
    """A fault, and the time of its injection.

    Attributes:
        at_ms: the virtual time of the injection.
        kind: one of `FAULTS`.
        value: the random seed of the fault's details.
    """

    at_ms: int
    kind: str
    value: int


@dataclass(slots=True)
class Plan:
    """One simulation.

    Attributes:
        seed: the seed of all random choices.
        store: "memory" or "lmdb"; "cluster" for several nodes.
        nodes: the number of nodes of a cluster; 0 for a single node without a cluster.
        trouble_ms: the duration of the phase with faults.
        max_steps: the largest number of events in that phase.
        settings: the node's settings.
        weather: the rates of the network; see `Weather`.
        round_ms: the longest time for which a round collects requests.
        background: the probability that a round is written in the background.
        topics: name -> the topic's partitions and settings.
        clients: the client processes of the run.
        faults: the faults to inject, in the order of their times.
    """

    seed: int
    store: str = "memory"
    nodes: int = 0
    trouble_ms: int = TROUBLE_MS
    max_steps: int = 1_000_000
    settings: dict[str, str] = field(default_factory=dict)
    weather: dict[str, Any] = field(default_factory=dict)
    round_ms: int = 1
    background: float = 0.0
    topics: dict[str, TopicPlan] = field(default_factory=dict)
    clients: list[ClientPlan] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def groups(self) -> list[str]:
        """The names of the groups that the clients of kind "member" join."""
        return list(dict.fromkeys(each.options["group"] for each in self.clients if each.kind == "member"))

    @property
    def streams_groups(self) -> dict[str, dict[str, str]]:
        """The streams groups with their subtopologies and source topics."""
        return {each.options["group"]: each.options["subtopologies"] for each in self.clients if each.kind == "streams"}

    @property
    def share_groups(self) -> dict[str, str]:
        """The share groups with their topics."""
        return {each.options["group"]: each.options["topics"][0] for each in self.clients if each.kind == "share"}

    def to_json(self) -> str:
        """Encodes the plan as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Decodes the result of `to_json`."""
        data = json.loads(text)
        data["topics"] = {name: TopicPlan(**each) for name, each in data["topics"].items()}
        data["clients"] = [ClientPlan(**each) for each in data["clients"]]
        data["faults"] = [Fault(**each) for each in data["faults"]]
        return cls(**data)


class _Draw:
    """A builder of a random plan."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(f"{seed}/plan")
        self.plan = Plan(seed, settings=dict(NODE_SETTINGS))
        self.volatile = False

    def chance(self, probability: float) -> bool:
        return self.choice.random() < probability

    def add(self, kind: str, name: str, options: dict[str, Any]) -> None:
        start_ms = self.choice.choice([0, self.choice.randrange(3_000), self.choice.randrange(TROUBLE_MS // 2)])
        self.plan.clients.append(ClientPlan(kind, name, options, start_ms))

    def node(self) -> None:
        choice, plan = self.choice, self.plan
        plan.store = choice.choice(["memory", "lmdb", "lmdb"])
        plan.trouble_ms = choice.choice([10_000, 30_000, TROUBLE_MS])
        plan.round_ms = choice.choice([0, 1, 1, 5, 20])
        plan.background = choice.choice([0.0, 0.0, 0.5, 1.0])
        plan.weather = {
            "max_delay_ms": choice.choice([0, 1, 10, 100]),
            "spike": choice.choice([0.0, 0.001, 0.01]),
            "spike_ms": choice.choice([100, 2_000, 5_000]),
            "cut": choice.choice([0.0, 0.0, 0.0005, 0.005]),
        }
        if self.chance(0.3):
            plan.settings |= {"kcore.snapshot.min.bytes": "2000", "kcore.snapshot.live.ratio": "1.0"}
        plan.topics = {"orders": TopicPlan(choice.choice([1, 3]))}

    def producers(self) -> None:
        partitions = self.plan.topics["orders"].partitions
        for number in range(self.choice.choice([1, 1, 2])):
            interval_ms = self.choice.choice([50, 300, 1_000])
            options = {"topic": "orders", "partitions": partitions, "interval_ms": interval_ms, "burst": 3}
            options["size_bytes"] = self.choice.choice([0, 0, 0, 1_500])
            self.add("producer", f"producer{number}", options)
        if self.chance(0.4):
            config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "2000"}
            self.plan.topics["keyed"] = TopicPlan(1, config)
            if self.chance(0.4):
                config["delete.retention.ms"] = "1000"
            options = {"topic": "keyed", "partitions": 1, "interval_ms": 200, "burst": 5, "keyed": True}
            options["tombstones"] = self.choice.choice([0, 0.2])
            self.add("producer", "keyed", options)
            self.plan.settings["log.cleaner.backoff.ms"] = "1000"
        if self.chance(0.4):
            self.plan.topics["short"] = TopicPlan(1)
            self.add("producer", "short", {"topic": "short", "partitions": 1, "interval_ms": 300, "burst": 2})
        if self.chance(0.3):
            config = {"retention.ms": self.choice.choice(["4000", "15000"]), "segment.ms": "2000"}
            self.plan.topics["aging"] = TopicPlan(1, config)
            self.add("producer", "aging", {"topic": "aging", "partitions": 1, "interval_ms": 200, "burst": 2})

    def members(self) -> None:
        choice = self.choice
        kinds: list[tuple[str, tuple[str, ...]]] = [
            ("classic", ("range",)),
            ("classic", ("cooperative-sticky",)),
            ("consumer", ()),
            ("consumer", ()),
        ]
        topics = ["orders", *(each for each in ("short", "aging") if each in self.plan.topics and self.chance(0.3))]
        self.volatile = self.chance(0.3)
        if self.volatile:
            topics.append("volatile")
        for number in range(choice.choice([1, 1, 2])):
            protocol, assignors = choice.choice(kinds)
            migrates = protocol == "consumer" and self.chance(0.2)
            for member in range(choice.choice([1, 2, 3, 4])):
                used = choice.choice(["classic", "consumer"]) if migrates else protocol
                static = self.chance(0.2) and "cooperative-sticky" not in assignors
                options = {
                    "group": f"group{number}",
                    "topics": list(topics),
                    "protocol": used,
                    "assignors": list(assignors or ("range",)),
                    "static": static,  # see the limits in docs/simulation.md
                    "auto_commit_ms": choice.choice([None, 500, 2_000]),
                    "read_committed": self.chance(0.7),
                    "listener_ms": choice.choice([10, 300, 5_000]),
                }
                self.add("member", f"member{number}{member}", options)

    def transactions(self) -> None:
        implicit = self.chance(0.6)
        if self.chance(0.5):
            for number in range(self.choice.choice([1, 2])):
                partitions = self.plan.topics["orders"].partitions
                options = {"topic": "orders", "partitions": partitions, "implicit": implicit, "aborts": 0.3}
                options["timeout_s"] = self.choice.choice([5, 20])
                self.add("transactional", f"writer{number}", options)
        if self.chance(0.5):
            self.plan.topics["copies"] = TopicPlan(2)
            for number in range(self.choice.choice([1, 2])):
                options = {
                    "topic": "copies",
                    "partitions": 2,
                    "implicit": implicit,
                    "aborts": self.choice.choice([0, 0.3]),
                    "source": "orders",
                    "source_partitions": self.plan.topics["orders"].partitions,
                    "group": "copies",
                    "identity": "copier",  # one transactional id: a second process fences the first
                }
                self.add("transactional", f"copier{number}", options)

        if self.chance(0.3):
            options = {"topic": "orders", "partitions": self.plan.topics["orders"].partitions, "implicit": implicit}
            self.add("abandoner", "abandoner", options | {"interval_ms": self.choice.choice([500, 3_000])})

    def streams(self) -> None:
        if self.chance(0.35):
            parts = {"first": "orders"} | ({"second": "copies"} if "copies" in self.plan.topics else {})
            for number in range(self.choice.choice([1, 2, 3])):
                options = {"group": "streams", "subtopologies": parts}
                options["closing_ms"] = self.choice.choice([10, 400, 4_000])
                self.add("streams", f"streams{number}", options)

    def shares(self) -> None:
        if self.chance(0.5):
            for number in range(self.choice.choice([1, 2, 3])):
                options = {"group": "workers", "topics": ["orders"], "careless": self.choice.choice([0.0, 0.05])}
                self.add("share", f"worker{number}", options)

    def others(self) -> None:
        if self.chance(0.5):
            options: dict[str, Any] = {"groups": self.plan.groups, "topic": "orders", "interval_ms": 300}
            if self.plan.share_groups:
                options |= {"share_groups": list(self.plan.share_groups), "share_topic": "orders"}
            self.add("breaker", "breaker", options)
        if self.chance(0.5):
            short = "short" if "short" in self.plan.topics else None
            options = {"topic": "orders", "short_topic": short, "interval_ms": self.choice.choice([100, 500])}
            self.add("admin", "admin", options | {"volatile": "volatile" if self.volatile else None})

    def faults(self) -> None:
        choice, plan = self.choice, self.plan
        enabled = [kind for kind in FAULTS if self.chance(0.4)]
        for kind in enabled:
            most = choice.choice([1, 2, 5]) if kind != "replay" else 3
            for _ in range(choice.randrange(1, most + 1)):
                plan.faults.append(Fault(choice.randrange(500, plan.trouble_ms), kind, choice.randrange(1 << 30)))
        plan.faults.sort(key=lambda fault: fault.at_ms)


def draw_plan(seed: int) -> Plan:
    """Returns the random plan that a seed determines."""
    draw = _Draw(seed)
    draw.node()
    draw.producers()
    draw.members()
    draw.transactions()
    draw.streams()
    draw.shares()
    draw.others()
    draw.faults()
    return draw.plan
