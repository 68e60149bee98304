"""Timeouts, expiry and restarts of transactions and transactional ids, in virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kcore.runtime.shard_state import ShardState
from kcore.transaction import shard as shard_module
from kcore.transaction.transaction import LAST_EPOCH
from tests.transaction.world import Identity, World, end_request

SCAN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000}


def test_a_transaction_is_aborted_at_the_first_check_after_its_timeout() -> None:
    """A transaction whose age equals its timeout continues until the next check. The abort fences its producer."""
    world = World(SCAN)
    who = world.begin("a", timeout_ms=5000)
    world.add("a", who, [("t", 0)])
    world.produce("a", who, 0, b"x")
    world.advance(5000)
    assert world.state("a") == "Ongoing"
    world.advance(999)
    assert world.state("a") == "Ongoing"
    world.advance(1)
    assert world.state("a") == "CompleteAbort"
    assert world.committed() == []
    assert world.end_offsets() == (2, 2)
    assert world.end("a", who, True)[0] is E.PRODUCER_FENCED
    assert world.produce("a", who, 1, b"late")[0] is E.INVALID_PRODUCER_EPOCH
    assert world.log_states("a")[-2:] == [("PrepareAbort", 0, 1), ("CompleteAbort", 0, 1)]


def test_adding_does_not_extend_a_timeout() -> None:
    world = World(SCAN)
    who = world.begin("a", timeout_ms=3000)
    world.add("a", who, [("t", 0)])
    world.advance(2500)
    world.add("a", who, [("t", 1)])
    world.advance(1500)
    assert world.state("a") == "CompleteAbort"


def test_a_shorter_timeout_applies_to_the_next_transaction() -> None:
    world = World(SCAN)
    who = world.begin("a", timeout_ms=60_000)
    world.add("a", who, [("t", 0)])
    world.end("a", who, True)
    who = world.begin("a", timeout_ms=2000)
    world.add("a", who, [("t", 0)])
    world.advance(4000)
    assert world.state("a") == "CompleteAbort"


def test_transactions_that_end_in_time_leave_one_timer_per_id() -> None:
    """After twenty transactions of one id that ended before their timeout, the shard has one timer for this id."""
    world = World(SCAN)
    who = world.begin("a", timeout_ms=5000)
    for _ in range(20):
        world.add("a", who, [("t", 0)])
        world.end("a", who, True)
        world.advance(100)
    shards = world.engine.transactions.shards
    assert shards is not None
    assert sum(len(shard.machine.timeouts) for shard in shards) == 1
    world.advance(10_000)
    assert sum(len(shard.machine.timeouts) for shard in shards) == 0
    assert world.state("a") == "CompleteCommit"


def test_a_load_watches_many_open_transactions_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a load, the shard arms the timers of seven open transactions, two per slice.

    Each transaction times out at its own time. A transaction that has ended meanwhile gets no timer.
    """
    monkeypatch.setattr(shard_module, "TIMERS_PER_SLICE", 2)
    world = World({**SCAN, "transaction.state.log.num.partitions": 1})
    opened = {}
    for number in range(7):
        tid = f"x{number}"
        opened[tid] = world.begin(tid, timeout_ms=5000 + 5000 * (number % 2))
        world.add(tid, opened[tid], [("t", 0)])
    shards = world.engine.transactions.shards
    assert shards is not None
    (shard,) = shards
    shard.restart("test")
    while shard.state is not ShardState.ACTIVE:
        world.engine.slices.step()
    armed = [len(shard.machine.timeouts)]
    ended = world.start(end_request("x6", opened["x6"], True), 4)
    while world.engine.slices:
        world.engine.slices.step()
        armed.append(len(shard.machine.timeouts))
    world.settle()
    assert ended.response.error_code == E.NONE
    assert armed[0] == 2
    assert armed[-1] == 6
    assert max(after - before for before, after in pairwise(armed)) <= 2
    world.advance(8000)
    assert [world.state(tid) for tid in opened] == ["CompleteAbort", "Ongoing"] * 3 + ["CompleteCommit"]
    world.advance(6000)
    assert [world.state(tid) for tid in opened] == ["CompleteAbort"] * 6 + ["CompleteCommit"]


def test_a_transaction_times_out_also_during_a_restart() -> None:
    world = World(SCAN)
    who = world.begin("a", timeout_ms=5000)
    world.add("a", who, [("t", 0)])
    world.produce("a", who, 0, b"x")
    world.clock.advance(4000)
    world.restart()
    assert world.state("a") == "Ongoing"
    world.advance(3000)
    assert world.state("a") == "CompleteAbort"


def test_a_fence_whose_commit_fails_is_repeated_with_the_same_epoch() -> None:
    """No producer got the epoch of the failed attempt, so the epoch is used again."""
    world = World(SCAN)
    who = world.begin("a", timeout_ms=1000)
    world.add("a", who, [("t", 0)])
    world.log.failures_left = 2
    world.advance(10_000)
    assert world.log.failures_left == 0
    assert world.state("a") == "CompleteAbort"
    assert world.describe("a").producer_epoch == who.producer_epoch + 1


def test_a_fenced_producer_of_version_2_continues_with_its_late_abort() -> None:
    """A late abort of the producer counts as a retry of the abort by timeout. A late commit is refused (KIP-890)."""
    world = World(SCAN)
    who = world.begin("a", timeout_ms=1000)
    world.produce("a", who, 0, b"x", version=12)
    world.advance(3000)
    assert world.end("a", who, True, 5)[0] is E.INVALID_TXN_STATE
    code, after = world.end("a", who, False, 5)
    assert (code, after) == (E.NONE, Identity(who.producer_id, who.producer_epoch + 1))
    assert world.produce("a", after, 0, b"y", version=12)[0] is E.NONE
    assert world.end("a", after, True, 5)[0] is E.NONE
    assert world.committed() == [b"y"]


EXPIRY = {
    "transactional.id.expiration.ms": 10_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 1000,
}


def test_an_unused_id_expires() -> None:
    world = World(EXPIRY)
    who = world.begin("a")
    world.advance(9_999)
    assert world.state("a") == "Empty"
    world.advance(1001)
    assert world.describe("a").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert world.log_states("a")[-1] == ("tombstone", -1, -1)
    assert world.add("a", who, [("t", 0)]) == [E.INVALID_PRODUCER_ID_MAPPING]
    world.restart()
    assert world.describe("a").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    code, after = world.init("a", who)
    assert code is E.NONE
    assert after.producer_id != who.producer_id
    assert after.producer_epoch == 0


def test_many_ids_expire_in_slices_and_open_ones_stay() -> None:
    world = World(EXPIRY)
    for number in range(2500):
        world.start(InitProducerIdRequest(transactional_id=f"id{number}", transaction_timeout_ms=60_000), 4)
    world.settle()
    who = world.begin("open")
    world.add("open", who, [("t", 0)])
    world.advance(12_000)
    shards = world.engine.transactions.shards
    assert shards is not None
    assert [tid for shard in shards for tid in shard.machine.transactions] == ["open"]


def test_producer_ids_are_never_allocated_twice() -> None:
    """A block of ids is durable before a response contains one of its ids.

    So neither a restart nor a failed commit causes a second allocation of an id.
    """
    world = World()
    seen: set[int] = set()
    for turn in range(6):
        for number in range(300):
            code, who = world.init(f"{turn}-{number}")
            assert code is E.NONE
            assert who.producer_id not in seen
            seen.add(who.producer_id)
        if turn % 2:
            world.log.failures_left = 1
            assert world.init(f"failing-{turn}")[0] is not E.NONE
        world.restart()


def exhausted(world: World, tid: str) -> Identity:
    """Initialises a producer until its epoch is the last one of a client."""
    world.begin(tid)
    epoch = 0
    while epoch < LAST_EPOCH:
        for _ in range(min(2000, LAST_EPOCH - epoch)):
            world.start(InitProducerIdRequest(transactional_id=tid, transaction_timeout_ms=1000), 4)
            epoch += 1
        world.settle()
    return Identity(world.describe(tid).producer_id, LAST_EPOCH)


@pytest.mark.parametrize("version", [4, 5])
def test_after_the_last_epoch_an_id_gets_another_producer_id(version: int) -> None:
    world = World()
    who = exhausted(world, "a")
    world.add("a", who, [("t", 0)])
    world.produce("a", who, 0, b"x")
    code, after = world.end("a", who, True, version)
    assert code is E.NONE
    if version == 5:
        assert after.producer_id != who.producer_id
        assert after.producer_epoch == 0
        assert world.end("a", who, True, 5) == (E.NONE, after)
        assert world.init("a", who) == (E.NONE, after)
    else:
        code, after = world.init("a", who)
        assert code is E.NONE
        assert (after.producer_id != who.producer_id, after.producer_epoch) == (True, 0)
        assert world.init("a", who) == (E.NONE, after)
    assert world.committed() == [b"x"]
    assert world.produce("a", after, 0, b"y", version=12)[0] is E.NONE
    assert world.end("a", after, True, 5)[0] is E.NONE
    assert world.committed() == [b"x", b"y"]


@pytest.mark.parametrize("level", [0, 1])
def test_a_client_with_the_epoch_of_a_fence_is_fenced_in_the_same_epoch(level: int) -> None:
    """Before transaction.version 2, the fence of an exhausted producer leaves the epoch 32767. A client that guesses it
    may write. The next instance aborts this transaction, too, and gets another producer id.
    """
    world = World()
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2)
    (result,) = world.call(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 1).results
    assert not result.error_code
    who = exhausted(world, "a")
    for identity in (who, Identity(who.producer_id, LAST_EPOCH + 1)):
        assert world.add("a", identity, [("t", 0)]) == [E.NONE]
        assert world.produce("a", identity, 0, b"lost")[0] is E.NONE
        assert world.init("a")[0] is E.CONCURRENT_TRANSACTIONS
        assert (world.state("a"), world.describe("a").producer_epoch) == ("CompleteAbort", 32_767)
    code, renewed = world.init("a")
    assert (code, renewed.producer_epoch, renewed.producer_id != who.producer_id) == (E.NONE, 0, True)
    assert world.committed() == []


def test_a_clock_that_was_ahead_when_a_transaction_began_delays_its_abort_by_one_timeout_at_most() -> None:
    """A node restarts with a clock that is an hour behind the start of an open transaction.

    Once the clock is corrected, the transaction is aborted within one timeout.
    """
    world = World(SCAN)
    who = world.begin("a", timeout_ms=5000)
    world.add("a", who, [("t", 0)])
    world.clock._wall_ms -= 3_600_000
    world.restart()
    world.advance(20_000)
    assert world.state("a") == "Ongoing"
    world.clock._wall_ms += 3_600_000
    world.advance(6_000)
    assert world.state("a") == "CompleteAbort"
