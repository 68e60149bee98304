"""Scenarios of one group member, whose requests are recorded. The member is kcore's or Java's; a second member beside
it is not recorded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import kcore
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.clients.members import Member
from tests.clients.waiting import eventually
from tests.recording_proxy import Recorded, RecordingProxy

PARTITIONS = 4
SESSION_MS = 5_000
"""Session timeout in ms: the time until the group detects that a killed member has ended."""
LAST = "last"
"""Client id of the group's members that are not recorded.

Member ids begin with the client id, and the range assignor orders members by member id, so these members come last.
"""
CLASSIC = {"session_timeout": 60.0, "heartbeat_interval": 0.15}
METADATA_MAX_AGE_S = 1.0
"""Settings of kcore's member, equal to those that tests/clients/members.py gives to Java's member."""


class KcoreMember:
    """A member of kcore that acts like Member.java: it polls, and commits after each batch of records."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str, client_id: str = "kcore") -> None:
        protocol: dict[str, Any] = {"protocol": "consumer"}
        if strategy != "consumer":
            protocol = {"protocol": "classic", "assignors": [strategy], **CLASSIC}
        self._node = kcore.connect(bootstrap, client_id=client_id)
        self._consumer = self._node.group(group).consume(
            topic, auto_commit=None, isolation="read_uncommitted", metadata_max_age=METADATA_MAX_AGE_S, **protocol
        )
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


class JavaMember:
    """A consumer of Java's client library, in a process of its own."""

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


SUBJECTS: dict[str, Callable[[str, str, str, str], Any]] = {"kcore": KcoreMember, "java": JavaMember}


def scenario(subject: str, bootstrap: str, group: str, strategy: str) -> dict[str, list[Recorded]]:
    """Runs one member through all steps, and returns its requests by step."""
    steps: dict[str, list[Recorded]] = {}
    topic = group
    everything = set(range(PARTITIONS))
    with RecordingProxy(bootstrap) as proxy, kcore.connect(bootstrap) as node:
        created = node.topics.create(topic, PARTITIONS)
        if strategy == "consumer":
            node.group(group).set_config({"consumer.session.timeout.ms": SESSION_MS})
        for number in sorted(everything):
            created.append("v", partition=number)
        member = SUBJECTS[subject](proxy.bootstrap, group, topic, strategy)
        second = None
        killed: list[Member] = []
        try:
            eventually(
                lambda: member.owned == everything and member.received == PARTITIONS and not member.uncommitted,
                "the member reads and commits everything",
            )
            steps["join"] = proxy.take()
            second = KcoreMember(bootstrap, group, topic, strategy, LAST)
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
            third = Member(
                "kcore",
                bootstrap=bootstrap,
                group=group,
                topics=[topic],
                strategy=strategy,
                session_timeout_ms=SESSION_MS,
                client_id=LAST,
            )
            killed.append(third)
            eventually(lambda: len(member.owned) == PARTITIONS // 2, "both members share again")
            _settle(proxy)
            steps["second rebalance"] = proxy.take()
            third.kill()
            eventually(lambda: member.owned == everything, "the group has noticed that the other member died")
            _settle(proxy)
            steps["crash"] = proxy.take()
            proxy.cut()
            eventually(lambda: _keeps_in_touch(proxy.requests), "the member returns")
            steps["reconnect"] = proxy.take()
            member.leave()
            steps["leave"] = proxy.take()
        finally:
            member.kill()
            for each in killed:
                each.kill()
            if second is not None:
                second.leave()
    return steps


def _settle(proxy: RecordingProxy) -> None:
    """Waits until the member has sent some heartbeats since its last assignment."""
    seen = len(proxy.requests)
    beats = (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    eventually(lambda: sum(each.api in beats for each in proxy.requests[seen:]) >= 3, "the member rests")


def _keeps_in_touch(requests: list[Recorded]) -> bool:
    """Returns True if the member sends heartbeats again, and continues a fetch session that it has opened meanwhile.

    Without a session, kcore's member would not close one when it leaves; Java's member always sends the request.
    """
    apis = [each.api for each in requests]
    epochs = [each.request.session_epoch for each in requests if each.api is ApiKey.FETCH]
    is_fetching = any((first, second) == (0, 1) for first, second in pairwise(epochs))
    return is_fetching and any(apis.count(each) >= 2 for each in (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT))


IGNORED = frozenset({"member_id", "client_software_name", "client_software_version", "max_wait_ms", "session_id"})
"""Names of fields that are not compared, because they always differ or depend on a setting of the member."""
ONCE = frozenset({ApiKey.FIND_COORDINATOR, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH})
"""APIs whose number of requests depends on timing. Only the first request of each step is compared."""
TIMED = frozenset({ApiKey.METADATA, ApiKey.FETCH, ApiKey.HEARTBEAT, ApiKey.API_VERSIONS})
"""APIs whose requests may fall into any step, depending on timing. They are compared over all steps together."""

MOVED = frozenset({"topics.partitions (number)", "topics.partitions.partition"})
"""Fields of a Fetch within a session that are not compared.

The fields name the partitions whose position has moved, which depends on timing.
"""


def fields_of(message: Any, topic: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the fields of a message with their paths, in an order that does not depend on the client."""
    for spec in message.FIELDS:
        if spec.name in IGNORED:
            continue
        value = getattr(message, spec.name)
        path = f"{prefix}{spec.name}"
        if isinstance(value, bytes) and spec.name in EMBEDDED:
            value = [EMBEDDED[spec.name].decode_versioned(value)[0]]
        if isinstance(value, list | tuple) and value and hasattr(value[0], "FIELDS"):
            yield f"{path} (number)", len(value)
            rows = [dict(fields_of(each, topic, f"{path}.")) for each in value]
            for row in sorted(rows, key=repr):
                yield from row.items()
        else:
            yield path, _normalized(spec.name, value, topic)


def _normalized(field: str, value: Any, topic: str) -> Any:
    """Replaces a value that differs in each run by a constant."""
    if isinstance(value, list | tuple):
        return [_normalized(field, each, topic) for each in sorted(value)]
    if value == topic:
        return "NAME"
    if field == "topic_id":
        return "ID" if any(value) else None
    if field == "session_epoch":
        return min(value, 1)
    return re.sub(r"consumer-\S+", "MEMBER", value) if isinstance(value, str) else value


EMBEDDED: dict[str, Any] = {"metadata": ConsumerProtocolSubscription, "assignment": ConsumerProtocolAssignment}


def compared(steps: dict[str, list[Recorded]], topic: str) -> dict[tuple[str, str, str], list[Any]]:
    """Converts recorded requests to a dict of (step, API, field) to the values of the field, in the order of the
    requests.
    """
    values: dict[tuple[str, str, str], list[Any]] = {}
    for step, requests in steps.items():
        seen: set[ApiKey] = set()
        for each in requests:
            step_name = step
            if each.api in TIMED:
                step_name = "any"
            elif each.api in ONCE and (each.api in seen or step == "reconnect"):
                continue
            elif each.api is ApiKey.CONSUMER_GROUP_HEARTBEAT and step == "reconnect":
                continue  # the whole state is repeated only if the cut hit a heartbeat: a matter of timing
            elif (
                each.api is ApiKey.CONSUMER_GROUP_HEARTBEAT
                and each.request.topic_partitions is None
                and each.request.member_epoch >= 0
            ):
                continue  # part of the heartbeat interval
            seen.add(each.api)
            for field, value in [("version", each.version), *fields_of(each.request, topic)]:
                if each.api is ApiKey.FETCH and each.request.session_epoch > 0 and field in MOVED:
                    continue
                if each.api is ApiKey.HEARTBEAT and field == "generation_id":
                    continue  # a short generation may end before a heartbeat is due
                listed = values.setdefault((step_name, each.api.name, field), [])
                if step_name != "any" or value not in listed:
                    listed.append(value)
    return values


def differences(strategy: str, bootstrap: str, name: str) -> dict[tuple[str, str], str]:
    """Runs the scenarios with both clients and compares their requests. Returns the first difference for each (API,
    field).
    """
    mine, other = (
        compared(scenario(subject, bootstrap, f"{subject}-{name}", strategy), f"{subject}-{name}")
        for subject in ("kcore", "java")
    )
    found: dict[tuple[str, str], str] = {}
    for key in sorted(mine.keys() | other.keys()):
        step, api, field = key
        if mine.get(key) != other.get(key):
            found.setdefault((api, field), f"{step}: {mine.get(key)} != {other.get(key)}")
    return found
