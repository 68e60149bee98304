"""Ownership: leader epochs decide which partitions are loaded and unloaded, and older epochs are ignored."""

import pytest

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Shards, ShardState, partition_for
from tests.runtime.machines import TOPIC, Bench


def shards_of(bench: Bench, partitions: int = 3) -> "Shards[object]":
    return Shards(TOPIC, partitions, bench.make, bench.pipeline)


def test_a_key_of_an_absent_partition_is_not_coordinated_here() -> None:
    bench = Bench()
    shards = shards_of(bench)
    shards.load(partition_for("here", 3), 1)
    assert shards.of("here").index == partition_for("here", 3)
    elsewhere = next(key for key in "abcdef" if partition_for(key, 3) != partition_for("here", 3))
    with pytest.raises(KafkaError) as caught:
        shards.of(elsewhere)
    assert caught.value.code == ErrorCode.NOT_COORDINATOR


def test_a_shard_exists_at_once_and_loads_in_slices() -> None:
    bench = Bench()
    shards = shards_of(bench)
    shards.load(0, 1)
    shard = shards.get(0)
    assert shard is not None
    assert shards.loading
    bench.slices.finish()
    assert (shards.loading, shard.state) == (False, ShardState.ACTIVE)


@pytest.mark.parametrize(("epoch", "stays"), [(None, False), (4, True), (5, True), (6, False)])
def test_an_unload_applies_if_its_epoch_is_newer_or_the_partition_is_deleted(epoch: int | None, stays: bool) -> None:
    bench = Bench()
    shards = shards_of(bench)
    shards.load(0, 5)
    bench.slices.finish()
    shards.unload(0, epoch)
    assert (shards.get(0) is not None) is stays


def test_decisions_are_committed_before_an_unload() -> None:
    bench = Bench()
    shards = shards_of(bench)
    shards.load(0, 1)
    bench.slices.finish()
    shard = shards.get(0)
    assert shard is not None
    bench.shard = shard
    pending = bench.run("add", "a", 1)
    shards.unload(0, 2)
    assert pending.response == ("added", "a", 1)


def test_a_newer_epoch_is_accepted_without_another_load() -> None:
    bench = Bench()
    shards = shards_of(bench)
    shards.load(0, 1)
    bench.slices.finish()
    shard = shards.get(0)
    shards.load(0, 3)
    assert shards.get(0) is shard
    assert shard is not None
    assert (shard.leader_epoch, shard.state) == (3, ShardState.ACTIVE)
    shards.load(0, 2)
    assert shard.leader_epoch == 3
