"""Planted defects of groups, share groups and members."""

from __future__ import annotations

from typing import Any

from kcore.broker.share import share_partition
from kcore.client.consumer_coordinator import classic_rebalance, consumer
from kcore.group import shard as group_shard
from kcore.group.classic import rebalance
from kcore.group.consumer import group as consumer_group
from kcore.group.consumer import reconcile
from kcore.share import local
from kcore_ext.group.consumer_assignment import PartitionOwners
from tools.simulate.mutants.mutant import Mutant, Patch

_ = rebalance


class _NoOwners:
    """A map of partition owners that returns no owner."""

    def of(self, topic_id: bytes) -> dict[int, int]:
        return {}

    def replace(self, before: Any, after: Any) -> None: ...


def _two_owners() -> list[Patch]:
    original = reconcile.next_partitions  # type: ignore[attr-defined]
    nobody = PartitionOwners()

    def next_partitions(assigned: Any, revoking: Any, target: Any, epoch: int, owners: Any, subscribed: Any) -> Any:
        return original(assigned, revoking, target, epoch, nobody, subscribed)

    return [
        (consumer_group, "PartitionOwners", _NoOwners),
        (reconcile, "next_partitions", next_partitions),
    ]


def _no_timers_after_load() -> list[Patch]:
    def on_loaded(self: Any) -> None:
        self.live = True

    return [(group_shard.GroupShard, "on_loaded", on_loaded)]


def _initialized_again() -> list[Patch]:
    original = local.LocalPersister.initialize
    return [(local.LocalPersister, "initialize", lambda self, request, may_repeat=None: original(self, request))]


def _delivery_state_ignored() -> list[Patch]:
    return [(share_partition, "batches_of", lambda batches: ())]


def _acknowledged_without_a_write() -> list[Patch]:
    def write_change(self: Any, change: Any, done: Any) -> None:
        self._written(change, done, 0)

    return [(share_partition.SharePartition, "_write_change", write_change)]


def _revokes_silently() -> list[Patch]:
    def revoke(self: Any, assigned: Any, dropped: Any, now_ms: int) -> None:
        self._adopt(assigned, dropped, now_ms)

    return [(classic_rebalance.ClassicRebalance, "_revoke_dropped", revoke)]


def _acknowledges_early() -> list[Patch]:
    original = consumer.ConsumerMember._revoke

    def revoke(self: Any, resolved: Any, target: Any, epoch: int, now_ms: int) -> None:
        original(self, resolved, target, epoch, now_ms)
        self._owned_ids = resolved
        self._acknowledged += 1

    return [(consumer.ConsumerMember, "_revoke", revoke)]


def _heartbeat_not_repeated() -> list[Patch]:
    original = consumer.ConsumerMember._send_heartbeat

    def send(self: Any, epoch: int, now_ms: int) -> None:
        original(self, epoch, now_ms)
        self._outgoing[-1].refuse = lambda error, at_ms: None

    return [(consumer.ConsumerMember, "_send_heartbeat", send)]


GROUP_MUTANTS = (
    Mutant("two-owners", "a partition is assigned before its owner has released it", _two_owners),
    Mutant("no-timers-after-load", "a load arms no timers of groups", _no_timers_after_load),
    Mutant("initialized-again", "a late initialization resets a share partition", _initialized_again, needs=("share",)),
    Mutant("deliveries-forgotten", "a load ignores the deliveries of a share partition", _delivery_state_ignored),
    Mutant("unwritten-acks", "acknowledgements of share records are not written", _acknowledged_without_a_write),
    Mutant("silent-revocation", "a cooperative member does not report revoked partitions", _revokes_silently),
    Mutant("early-acknowledgement", "a member releases partitions before its listener ends", _acknowledges_early),
    Mutant("lost-heartbeat", "a member does not repeat a lost heartbeat", _heartbeat_not_repeated),
)
