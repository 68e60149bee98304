"""Scenarios of one group member, recorded: the member of kcore or of Java, beside a second one that is not recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import kcore
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.clients.members import Member
from tests.clients.waiting import eventually
from tests.recording_proxy import Recorded, RecordingProxy

PARTITIONS = 4
OPTIONS = {"session_timeout": 60.0, "heartbeat_interval": 0.15, "metadata_max_age": 1.0}
"""The settings of tests/clients/members.py, which Java's member gets."""


class Ours:
    """A member of kcore that acts like Member.java: it polls, and commits after each batch of records."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        protocol: dict[str, Any] = {"protocol": "consumer"}
        if strategy != "consumer":
            protocol = {"protocol": "classic", "assignors": [strategy]}
        self._node = kcore.connect(bootstrap)
        self._consumer = self._node.group(group).consume(topic, auto_commit=None, **OPTIONS, **protocol)
        self._stopped = threading.Event()
        self.received = 0
        self.uncommitted = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._consumer as consumer:
            while not self._stopped.is_set():
                records = consumer.poll(0.1)
                self.received += len(records)
                if records:
                    self.uncommitted = len(records)
                    consumer.commit()
                    self.uncommitted = 0

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment}

    def leave(self) -> None:
        self._stopped.set()
        self._thread.join(20)
        self._node.close()

    kill = leave


class Theirs:
    """Java's member."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        self._member = Member("java", bootstrap=bootstrap, group=group, topics=[topic], strategy=strategy)

    @property
    def owned(self) -> set[int]:
        return {number for _, number in self._member.owned or ()}

    @property
    def received(self) -> int:
        return len(self._member.records)

    @property
    def uncommitted(self) -> int:
        return self._member.uncommitted

    def leave(self) -> None:
        self._member.leave()

    def kill(self) -> None:
        self._member.kill()


SUBJECTS: dict[str, Callable[[str, str, str, str], Any]] = {"kcore": Ours, "java": Theirs}


def scenario(subject: str, bootstrap: str, group: str, strategy: str) -> dict[str, list[Recorded]]:
    """Runs one member through all steps, and returns its requests by step."""
    steps: dict[str, list[Recorded]] = {}
    topic = group
    everything = set(range(PARTITIONS))
    with RecordingProxy(bootstrap) as proxy, kcore.connect(bootstrap) as node:
        created = node.topics.create(topic, PARTITIONS)
        for number in sorted(everything):
            created.append("v", partition=number)
        member = SUBJECTS[subject](proxy.bootstrap, group, topic, strategy)
        second = None
        try:
            eventually(
                lambda: member.owned == everything and member.received == PARTITIONS and not member.uncommitted,
                "the member reads and commits everything",
            )
            steps["join"] = proxy.take()
            second = Ours(bootstrap, group, topic, strategy)
            eventually(
                lambda: (
                    len(member.owned) == len(second.owned) == PARTITIONS // 2
                    and member.owned | second.owned == everything
                ),
                "both members share",
            )
            _settle(proxy)
            steps["rebalance"] = proxy.take()
            second.leave()
            eventually(lambda: member.owned == everything, "the member has everything again")
            _settle(proxy)
            steps["takeover"] = proxy.take()
            proxy.cut()
            eventually(lambda: _keeps_in_touch(proxy.requests), "the member returns")
            steps["reconnect"] = proxy.take()
            member.leave()
            steps["leave"] = proxy.take()
        finally:
            member.kill()
            if second is not None:
                second.leave()
    return steps


def _settle(proxy: RecordingProxy) -> None:
    """Waits until the member rests: it has sent some heartbeats since it got its partitions."""
    seen = len(proxy.requests)
    beats = (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    eventually(lambda: sum(each.api in beats for each in proxy.requests[seen:]) >= 3, "the member rests")


def _keeps_in_touch(requests: list[Recorded]) -> bool:
    apis = [each.api for each in requests]
    return ApiKey.FETCH in apis and any(
        apis.count(each) >= 2 for each in (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    )


class Plain:
    """Converts requests into values that are equal for both clients if their meaning is equal."""

    def __init__(self, group: str) -> None:
        self._names: dict[Any, str] = {group: "GROUP"}
        self._counts: dict[str, int] = {}

    def name(self, kind: str, value: Any) -> Any:
        """Replaces an id by its number in the order of appearance."""
        if not value:
            return value
        if value not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[value] = f"{kind}{self._counts[kind]}"
        return self._names[value]

    def value(self, name: str, value: Any) -> Any:
        """Converts a field."""
        if hasattr(value, "FIELDS"):
            return self.fields(value)
        if name == "metadata" and isinstance(value, bytes):
            return self.fields(ConsumerProtocolSubscription.decode_versioned(value)[0])
        if name == "assignment" and isinstance(value, bytes):
            return self.fields(ConsumerProtocolAssignment.decode_versioned(value)[0])
        if isinstance(value, list | tuple):
            return [self.value(name, each) for each in value]
        if name in ("member_id", "topic_id", "session_id"):
            return self.name(name, value)
        return self._names.get(value, value) if isinstance(value, str) else value

    def fields(self, message: Any) -> dict[str, Any]:
        """Converts a message to a dictionary."""
        return {each.name: self.value(each.name, getattr(message, each.name)) for each in message.FIELDS}
