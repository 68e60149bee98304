"""Faults planted in the state machines of members. The random tests must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.client.consumer_coordinator import base, classic, consumer
from kcore.client.consumer_coordinator.interface import Commit
from kcore.client.consumer_coordinator.ownership import Ownership
from tests.consumer_coordinator.test_random import run_chaos

SEEDS = range(20)
CONSUMER: dict[str, Any] = {"protocol": "consumer"}
CLASSIC: dict[str, Any] = {"protocol": "classic"}
COOPERATIVE: dict[str, Any] = {"protocol": "classic", "assignors": ["cooperative-sticky"]}

Plant = Callable[[pytest.MonkeyPatch], None]


def _classic_gives_up_silently(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(classic.ClassicMember, "_give_up", classic.ClassicMember._begin_join)


def _cooperative_revokes_silently(patch: pytest.MonkeyPatch) -> None:
    def revoke(self: Any, assigned: Any, dropped: Any, now_ms: int) -> None:
        self._adopt(assigned, dropped, now_ms)

    patch.setattr(classic.ClassicMember, "_revoke_dropped", revoke)


def _consumer_revokes_silently(patch: pytest.MonkeyPatch) -> None:
    def revoke(self: Any, resolved: Any, target: Any, epoch: int, now_ms: int) -> None:
        self._adopt(resolved, target, None, now_ms)

    patch.setattr(consumer.ConsumerMember, "_revoke", revoke)


def _consumer_acknowledges_before_the_listener(patch: pytest.MonkeyPatch) -> None:
    """Plants a fault: the member reports partitions as released to the coordinator while the user's code still uses
    them.
    """
    original = consumer.ConsumerMember._revoke

    def revoke(self: Any, resolved: Any, target: Any, epoch: int, now_ms: int) -> None:
        original(self, resolved, target, epoch, now_ms)
        self._owned_ids = resolved
        self._acknowledged += 1

    patch.setattr(consumer.ConsumerMember, "_revoke", revoke)


def _a_fenced_consumer_commits(patch: pytest.MonkeyPatch) -> None:
    original = consumer.ConsumerMember._lose_all

    def lose_all(self: Any, now_ms: int) -> None:
        self.fenced_epoch = self._epoch
        original(self, now_ms)

    def identity(self: Any) -> tuple[str, int, str | None]:
        epoch = self._epoch or getattr(self, "fenced_epoch", 0)
        return self._member_id, epoch, self.settings.instance_id

    patch.setattr(consumer.ConsumerMember, "_lose_all", lose_all)
    patch.setattr(consumer.ConsumerMember, "_commit_identity", identity)


def _a_fenced_classic_member_commits(patch: pytest.MonkeyPatch) -> None:
    def identity(self: Any) -> tuple[str, int, str | None]:
        return self.generation.member_id, self._last_generation_id, self.settings.instance_id

    patch.setattr(classic.ClassicMember, "_commit_identity", identity)
    patch.setattr(Ownership, "end_membership", lambda self: None)  # the second fence, for queued commits


def _a_failed_commit_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def retry(self: Any, commit: Commit, error: Exception, now_ms: int) -> None:
        self._committing = None

    patch.setattr(base.GroupMemberMachine, "_retry_commit", retry)


def _a_lost_heartbeat_is_never_repeated(patch: pytest.MonkeyPatch) -> None:
    original = consumer.ConsumerMember._send_heartbeat

    def send(self: Any, epoch: int, now_ms: int) -> None:
        original(self, epoch, now_ms)
        outgoing = self._outgoing[-1]
        outgoing.refuse = lambda error, at_ms: None

    patch.setattr(consumer.ConsumerMember, "_send_heartbeat", send)


def run_seeds(kind: dict[str, Any]) -> None:
    for seed in SEEDS:
        assert run_chaos(kind, seed, silence=True).unfinished == [], "every commit ends"


@pytest.mark.parametrize(
    ("plant", "kind", "message"),
    [
        (_classic_gives_up_silently, CLASSIC, "silently"),
        (_cooperative_revokes_silently, COOPERATIVE, "silently|twice"),
        (_consumer_revokes_silently, CONSUMER, "silently"),
        (_consumer_acknowledges_before_the_listener, CONSUMER, "belongs to"),
        (_a_fenced_consumer_commits, CONSUMER, "fenced|outside"),
        (_a_fenced_classic_member_commits, CLASSIC, "fenced|outside"),
        (_a_failed_commit_is_forgotten, CONSUMER, "every commit ends|not within|again and again"),
        (_a_lost_heartbeat_is_never_repeated, CONSUMER, "not within"),
    ],
    ids=lambda value: getattr(value, "__name__", "").strip("_") or None,
)
def test_the_random_tests_find_a_planted_fault(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, kind: dict[str, Any], message: str
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=message):
        run_seeds(kind)
