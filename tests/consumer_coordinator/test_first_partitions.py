"""The times until a new member has its first partitions, as docs/python-api.md states them, in virtual time."""

from __future__ import annotations

import pytest

from tests.consumer_coordinator import world as worlds
from tests.consumer_coordinator.world import World


@pytest.fixture
def _defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the tests a heartbeat interval of five seconds and an assignment interval of one second."""
    monkeypatch.setattr(worlds, "SETTINGS", {"offsets.topic.num.partitions": "1"})


def wait_ms(seed: int, *, leaves: bool) -> int:
    """Returns the time until a new member owns partitions, in a group that has another member.

    With `leaves`, the other member leaves the group before the new member joins.
    """
    world = World(seed, t=4)
    try:
        other = world.member("other", "t")
        world.until(lambda: len(other.owned) == 4)
        world.run(world.random.choice([0, 300, 900, 3_000, 7_000]))
        if leaves:
            other.machine.close(world.now_ms)
            world.until(lambda: other.machine.closed)
        joined_ms = world.now_ms
        new = world.member("new", "t")
        world.until(lambda: bool(new.owned))
        return world.now_ms - joined_ms
    finally:
        world.close()


@pytest.mark.usefixtures("_defaults")
def test_a_new_member_waits_for_two_seconds_at_most_if_another_one_has_just_left() -> None:
    """The coordinator postpones the assignment of the new member by up to a second, and the member sends its next
    heartbeat soon.
    """
    waits_ms = [wait_ms(seed, leaves=True) for seed in range(20)]
    assert 500 < max(waits_ms) <= 2_000


@pytest.mark.usefixtures("_defaults")
def test_a_new_member_waits_for_seven_seconds_at_most_if_another_one_gives_partitions_up() -> None:
    """The other member gets its new assignment with its next heartbeat. The new member gets its partitions with a
    heartbeat after that.
    """
    waits_ms = [wait_ms(seed, leaves=False) for seed in range(20)]
    assert 2_000 < max(waits_ms) <= 7_000
