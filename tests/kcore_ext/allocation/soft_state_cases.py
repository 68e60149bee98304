"""Timers and delayed operations while allocations fail: each armed timer still fires exactly once."""

from __future__ import annotations

from kcore.group.consumer.assignment import CurrentAssignment, heartbeat_assignment
from kcore_ext.group.consumer_assignment import PartitionOwners, next_partitions, with_granted
from kcore_ext.runtime.purgatory import DelayedOperation, Purgatory
from kcore_ext.runtime.timer_wheel import TimerWheel
from kcore_ext.share.states import ShareState, ShareStates
from tests.kcore_ext.allocation.sweep import Attempt


class _Operation(DelayedOperation):
    def __init__(self) -> None:
        self.completions = self.expirations = 0  # small numbers: counting them takes no memory

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.completions += 1

    def on_expiration(self) -> None:
        self.expirations += 1


def timer_wheel() -> Attempt:
    """Arms timers that are due out of order, so that the wheel has to sort them."""
    wheel = TimerWheel(0)
    late = [wheel.add(5000 + n, ("late", n)) for n in range(20)]
    fired: list[object] = [None] * 40  # preallocated, so that storing a fired timer never fails

    def action() -> None:
        for n in range(10):
            wheel.add(9000 - 7 * n, ("new", n))
        for timer in late:
            timer.extend(8000)
        for at, timer in enumerate(wheel.advance(8970)):
            fired[at] = timer.payload

    def check(succeeded: bool) -> None:
        fired[:] = [payload for payload in fired if payload is not None]
        fired.extend(timer.payload for timer in wheel.advance(10_000))
        assert len(fired) == len(set(fired)) == wheel.fired_total == wheel.armed_total
        assert {("late", n) for n in range(20)} <= set(fired)
        assert len(wheel) == 0
        assert not succeeded or len(fired) == 30

    return Attempt(action, check)


def purgatory() -> Attempt:
    """Watches delayed operations under several keys, then checks them by one key and lets them expire."""
    wheel = TimerWheel(0)
    delayed = Purgatory(wheel)
    operations = [_Operation() for _ in range(12)]

    def action() -> None:
        for n, operation in enumerate(operations):
            delayed.try_complete_else_watch(operation, ("all", f"key-{n}"), 100)
        delayed.check_and_complete("all")
        for timer in wheel.advance(200):
            timer.payload()

    def check(succeeded: bool) -> None:
        for timer in wheel.advance(1000):
            timer.payload()
        assert delayed.num_delayed == len(delayed.operations()) == 0
        assert delayed.num_watched == 0
        assert all(operation.expirations <= operation.completions <= 1 for operation in operations)
        assert not succeeded or all(operation.expirations for operation in operations)

    return Attempt(action, check)


def share_states() -> Attempt:
    """Adds and removes states of share partitions until the table grows."""
    states = ShareStates()
    keys = [(f"g{n % 3}", bytes(16), n) for n in range(40)]

    def action() -> None:
        for n, key in enumerate(keys):
            states.put(key, ShareState())
            if n % 4 == 3:
                states.discard(keys[n - 1])

    def check(succeeded: bool) -> None:
        found = {(state.group_id, state.topic_id, state.partition): state for state in states.values()}
        assert len(found) == len(states)
        assert all(states.get(key) is state for key, state in found.items())
        assert set(found) <= set(keys)
        assert not succeeded or len(found) == 30
        for key in keys:
            states.discard(key)
        assert (len(states), states.values()) == (0, [])

    return Attempt(action, check)


def member_step() -> Attempt:
    """Computes two assignments of a consumer group member and stores them as owners of partitions."""
    topics = [bytes([number]) * 16 for number in range(20)]
    target = {topic_id: (0, 1) if number % 2 else (2, 3, 4) for number, topic_id in enumerate(topics)}
    found: list[PartitionOwners] = []

    def action() -> None:
        owners = PartitionOwners()
        _, _, granted, _ = next_partitions({}, {}, target, 5, owners, lambda _: True)
        first = CurrentAssignment(5, 4, assigned=granted)
        owners.replace(None, first)
        second = CurrentAssignment(6, 5, assigned=with_granted(dict(granted), {topics[0]: {9: 6}}))
        owners.replace(first, second)
        heartbeat_assignment(second.assigned)
        found.append(owners)

    def check(succeeded: bool) -> None:
        assert len(found) == succeeded
        for owners in found:
            assert owners.of(topics[0]) == {2: 6, 3: 6, 4: 6, 9: 6}
            assert owners.of(topics[1]) == {0: 6, 1: 6}

    return Attempt(action, check)
