"""Decide, replay, commit, respond: the order of events in a shard, and the effects of failures."""

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Pending, RequestContext, ShardState
from kcore_ext.batch import BatchBuilder, build_control_batch, iter_records, parse_header
from tests.runtime.machines import KEY, Bench, Forget


def stored(bench: Bench) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for _, batch in bench.log.open(KEY).batches()
        for record in iter_records(batch)
    ]


def test_a_read_of_a_clean_shard_gets_its_response_at_once() -> None:
    assert Bench().run("read", "a") == ("count", "a", 0)


def test_a_decision_is_replayed_at_once_and_its_response_follows_the_commit() -> None:
    bench = Bench()
    pending = bench.run("add", "a", 5)
    assert isinstance(pending, Pending)
    assert not pending.parked
    assert bench.shard.machine.counts == {"a": 5}
    assert not pending.done
    assert stored(bench) == []
    assert bench.pipeline.commit()
    assert pending.response == ("added", "a", 5)
    assert stored(bench) == [(0, b"a", b"3:5")]


def test_a_read_of_uncommitted_records_waits_for_them() -> None:
    bench = Bench()
    write = bench.run("add", "a", 1)
    read = bench.run("read", "b")
    order: list[str] = []
    write.on_complete(lambda _: order.append("write"))
    read.on_complete(lambda _: order.append("read"))
    bench.pipeline.commit()
    assert order == ["write", "read"]
    assert read.response == ("count", "b", 0)


def test_refusals_based_on_uncommitted_state_wait_too() -> None:
    bench = Bench()
    assert bench.run("refuse", "a") == ("error", ErrorCode.ILLEGAL_GENERATION, "no")
    bench.run("add", "a", 1)
    assert isinstance(bench.run("refuse", "a"), Pending)


def test_decisions_of_one_round_share_a_batch() -> None:
    bench = Bench()
    for n in range(3):
        bench.run("add", "a", n)
    bench.pipeline.commit()
    batches = [parse_header(batch) for _, batch in bench.log.open(KEY).batches()]
    assert [(b.base_offset, b.record_count) for b in batches] == [(0, 3)]
    assert [offset for offset, *_ in bench.shard.machine.replayed] == [0, 1, 2]


def test_a_round_that_outgrows_a_batch_gets_a_second_one() -> None:
    bench = Bench(max_batch_bytes=400)
    responses = [bench.run("add", f"name-{n:040}", n) for n in range(8)]
    bench.pipeline.commit()
    batches = [parse_header(batch) for _, batch in bench.log.open(KEY).batches()]
    assert len(batches) > 1
    assert sum(b.record_count for b in batches) == 8
    assert [offset for offset, *_ in bench.shard.machine.replayed] == list(range(8))
    assert all(response.done for response in responses)


def test_a_decision_too_large_for_a_batch_is_refused_before_anything_changes() -> None:
    bench = Bench(max_batch_bytes=400)
    assert bench.run("large", "a", 500) == ("error", ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert bench.shard.machine.counts == {}
    assert not bench.pipeline.dirty


def test_records_of_a_transaction_have_their_own_batch() -> None:
    bench = Bench()
    bench.run("add", "a", 1)
    bench.run("in transaction", "b", 2)
    bench.run("add", "c", 3)
    bench.pipeline.commit()
    batches = [parse_header(batch) for _, batch in bench.log.open(KEY).batches()]
    assert [(b.producer_id, b.producer_epoch, b.is_transactional) for b in batches] == [
        (-1, -1, False),
        (7, 2, True),
        (-1, -1, False),
    ]
    assert bench.shard.machine.replayed == [(0, -1, "a", 1), (1, 7, "b", 2), (2, -1, "c", 3)]


def test_a_decision_completes_the_parked_request_that_it_frees() -> None:
    bench = Bench()
    waiting = bench.run("wait", "a", 10)
    assert waiting.parked
    bench.run("add", "a", 4)
    bench.pipeline.commit()
    assert not waiting.done
    bench.run("add", "a", 6)
    assert not waiting.done, "the change that completes the request is not durable yet"
    bench.pipeline.commit()
    assert waiting.response == ("reached", "a", 10)


def test_a_timer_decides_like_a_request() -> None:
    bench = Bench()
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    bench.run("forget after", "a", 100)
    bench.advance(99)
    assert bench.shard.machine.counts == {"a": 1}
    bench.advance(1)
    bench.pipeline.commit()
    assert stored(bench)[-1] == (1, b"a", None)


def test_a_disarmed_timer_does_not_fire_and_is_dropped() -> None:
    bench = Bench()
    bench.run("add", "a", 1)
    timer = Forget("a")
    armed = timer.timer = bench.shard.schedule(bench.now.now_ms + 100, timer)
    timer.disarm()
    timer.disarm()
    assert (armed.armed, timer.timer) == (False, None)
    bench.advance(200)
    assert bench.shard.machine.counts == {"a": 1}


def test_a_timer_of_an_earlier_load_does_nothing() -> None:
    bench = Bench()
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    bench.run("forget after", "a", 100)
    bench.run("add", "b", 1)
    bench.log.failures_left = 1
    bench.pipeline.commit()
    bench.slices.finish()
    bench.advance(200)
    assert bench.shard.machine.counts == {"a": 1}


def test_a_failed_commit_restores_the_logs_state() -> None:
    bench = Bench()
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    before = bench.shard.machine
    parked = bench.run("wait", "a", 10)
    write, read = bench.run("add", "a", 1), bench.run("read", "a")
    bench.log.failures_left = 1
    assert not bench.pipeline.commit()
    refused = ("error", ErrorCode.NOT_COORDINATOR, None)
    assert (write.response, read.response, parked.response) == (refused, refused, refused)
    assert before.unloaded == 1
    assert bench.run("read", "a") == ("error", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
    bench.slices.finish()
    assert bench.shard.state is ShardState.ACTIVE
    assert bench.run("read", "a") == ("count", "a", 1)
    again = bench.run("add", "a", 1)
    bench.pipeline.commit()
    assert again.response == ("added", "a", 2)
    assert stored(bench) == [(0, b"a", b"3:1"), (1, b"a", b"3:2")]


def test_a_failing_replay_reloads_the_shard_and_keeps_earlier_decisions() -> None:
    bench = Bench()
    good = bench.run("add", "a", 1)
    assert bench.run("add", "unreplayable", 1) == ("error", ErrorCode.NOT_COORDINATOR, None)
    assert bench.shard.state is ShardState.FAILED
    bench.pipeline.commit()
    bench.slices.finish()
    assert good.response == ("added", "a", 1)
    assert bench.run("read", "a") == ("count", "a", 1)
    assert stored(bench) == [(0, b"a", b"3:1")]


def test_a_bug_in_a_decision_gets_an_unknown_server_error() -> None:
    assert Bench().run("bug", "a") == ("error", ErrorCode.UNKNOWN_SERVER_ERROR, None)


def test_a_load_replays_data_and_markers_and_skips_unknown_records() -> None:
    bench = Bench()
    log = bench.log.open(KEY)
    builder = BatchBuilder(1_000, base_timestamp_ms=1, producer_id=7, producer_epoch=2, transactional=True)
    builder.append(1, b"a", b"0:1")
    builder.append(1, b"alien", b"?")
    log.append(bytearray(builder.build()), log.leader_epoch)
    marker = build_control_batch(1, 0, producer_id=7, producer_epoch=2, timestamp_ms=1)
    log.append(bytearray(marker), log.leader_epoch)
    bench.log.commit()
    shard = bench.make(0)
    shard.load()
    assert shard.state is ShardState.LOADING
    bench.slices.finish()
    assert shard.machine.replayed == [(0, 7, "a", 1)]
    assert shard.machine.markers == [(2, 7, 2, True)]
    assert (shard.report.records, shard.report.unknown, shard.report.batches) == (1, 1, 2)
    assert shard.machine.loaded == 1


def test_a_log_that_cannot_be_replayed_fails_the_load() -> None:
    bench = Bench()
    builder = BatchBuilder(1_000, base_timestamp_ms=1)
    builder.append(1, b"unreplayable", b"0:1")
    log = bench.log.open(KEY)
    log.append(bytearray(builder.build()), log.leader_epoch)
    bench.log.commit()
    shard = bench.make(0)
    shard.load()
    bench.slices.finish()
    assert shard.state is ShardState.FAILED
    assert shard.run(bench.api, RequestContext(0), ("read", "a")) == ("error", ErrorCode.NOT_COORDINATOR, None)


def test_an_unloaded_shard_completes_all_waiting_requests() -> None:
    bench = Bench()
    parked = bench.run("wait", "a", 1)
    bench.shard.unload()
    assert parked.response == ("error", ErrorCode.NOT_COORDINATOR, None)
    assert bench.run("read", "a") == ("error", ErrorCode.NOT_COORDINATOR, None)
    with pytest.raises(AssertionError):
        bench.shard.load()


def test_long_work_decides_one_slice_at_a_time_and_ends_with_the_shard() -> None:
    bench = Bench()
    from kcore.runtime import Outcome, Record
    from tests.runtime.machines import Count, Name

    def work():  # type: ignore[no-untyped-def]
        for n in range(5):
            yield Outcome([Record(Name(f"n{n}"), Count(n))])

    bench.shard.in_slices(work())
    bench.slices.step()
    bench.slices.step()
    assert bench.shard.machine.counts == {"n0": 0, "n1": 1}
    bench.pipeline.commit()
    bench.shard.unload()
    bench.slices.finish()
    assert len(stored(bench)) == 2
