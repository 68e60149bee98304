"""Assignors while allocations fail: topics, subscriptions and earlier results stay usable."""

from __future__ import annotations

from typing import Any

from kcore.assignors import Member, Topics, get
from tests.kcore_ext.allocation.sweep import Attempt

RACKS = ("a", "b", "c")


def _topics() -> Topics:
    return Topics(
        {"orders": 7, "payments": 4, "refunds": 9},
        racks={
            name: [[RACKS[n % 3]] for n in range(count)]
            for name, count in (("orders", 7), ("payments", 4), ("refunds", 9))
        },
    )


def _members(count: int) -> list[Member]:
    wanted = (["orders", "payments"], ["orders", "refunds", "absent"], ["payments", "orders", "refunds"])
    return [
        Member(f"member-{n}", wanted[n % 3], rack_id=RACKS[n % 3], instance_id="static" if n == 2 else None)
        for n in range(count)
    ]


def _assign(name: str, group_type: str) -> Attempt:
    """Runs two assignments. The second assignment has one more member, and its members own the partitions of the first
    one.
    """
    assignor: Any = get(name, group_type)
    topics = _topics()
    few, more = _members(4), _members(5)
    given: list[Any] = []

    def work(known: Topics) -> list[Any]:
        first = assignor.assign(few, known)
        rows = {member: dict(row) for member, row in first.items()}
        owned = [
            Member(m.member_id, m.topics, owned=rows.get(m.member_id), rack_id=m.rack_id, instance_id=m.instance_id)
            for m in more
        ]
        second = assignor.assign(owned, known)
        return [rows, {member: dict(row) for member, row in second.items()}]

    def action() -> None:
        given.append(work(topics))

    def check(succeeded: bool) -> None:
        expected = work(_topics())
        assert given == [expected] * succeeded
        assert work(topics) == expected, "a failed call influences the next one"

    return Attempt(action, check)


def subscriptions_of_two_images() -> Attempt:
    """Assigns the same members with two different versions of the topics. Cached positions of the first version must
    not be used for the second one.
    """
    assignor: Any = get("range")
    members = [Member(f"member-{n}", ["orders", "refunds", "unknown"]) for n in range(3)]
    first, second = Topics({"orders": 3, "refunds": 2}), Topics({"a": 1, "b": 1, "orders": 3, "refunds": 2})
    expected = {member: dict(row) for member, row in assignor.assign(members, second).items()}
    given: list[Any] = []

    def assign(topics: Topics) -> Any:
        return {member: dict(row) for member, row in assignor.assign(members, topics).items()}

    def action() -> None:
        given.append(assign(first))

    def check(succeeded: bool) -> None:
        assert assign(second) == expected
        assert given == [expected] * succeeded
        assert assign(first) == expected

    return Attempt(action, check)


def range_assignor() -> Attempt:
    """Runs Kafka's range assignor with racks."""
    return _assign("range", "classic")


def round_robin_assignor() -> Attempt:
    """Runs Kafka's round-robin assignor."""
    return _assign("roundrobin", "classic")


def sticky_assignor() -> Attempt:
    """Runs Kafka's sticky assignor with different subscriptions, so that it takes its general path."""
    return _assign("sticky", "classic")


def cooperative_sticky_assignor() -> Attempt:
    """Runs Kafka's cooperative-sticky assignor."""
    return _assign("cooperative-sticky", "classic")


def uniform_assignor() -> Attempt:
    """Runs the server's uniform assignor."""
    return _assign("uniform", "consumer")


def server_range_assignor() -> Attempt:
    """Runs the server's range assignor."""
    return _assign("range", "consumer")


def read_topics() -> Attempt:
    """Creates a `Topics` object with racks from dictionaries."""
    made: list[Topics] = []

    def action() -> None:
        made.append(_topics())

    def check(succeeded: bool) -> None:
        assert [dict(one) for one in made] == [{"orders": 7, "payments": 4, "refunds": 9}] * succeeded

    return Attempt(action, check)
