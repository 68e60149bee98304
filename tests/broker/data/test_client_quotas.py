"""Enforcement of client quotas: rates as Kafka measures them, the precedence of entities, and the throttle time of
Produce.
"""

from __future__ import annotations

import pytest

from kcore.broker.data import client_quotas
from kcore.broker.data.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, ClientQuotas
from kcore.broker.data.rates import Rate
from kcore.broker.metadata.image import QuotaEntity
from kcore.broker.metadata.topics import Topics
from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.config.setting import INT_MAX
from kcore.protocol.messages.fetch import FetchResponse
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.runtime.api import RequestContext
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_fetch import data_of, entry, fetch
from tests.broker.data.test_produce import produce


def quotas(
    rates: dict[QuotaEntity, float], **settings: str
) -> tuple[ClientQuotas, ManualClock, Now, list[tuple[int, int]]]:
    topics, clock = Topics(), ManualClock()
    for entity, rate in rates.items():
        topics.image.put_quota(entity, PRODUCER_BYTE_RATE, rate)
    now = Now(clock)
    muted: list[tuple[int, int]] = []
    enforced = ClientQuotas(topics, now, Config.of(**settings))
    enforced.mute = lambda connection_id, duration_ms: muted.append((connection_id, duration_ms))
    return enforced, clock, now, muted


def test_a_rate_begins_with_a_burst_and_falls_with_time() -> None:
    """The rate is averaged over ten windows of one second, so a new client may send ten times the quota at once."""
    rate = Rate()
    rate.record(20_000, 0, 1_000)
    assert rate.excess_ms(10_000, 0, 1_000, 11) == 0
    rate.record(140_000, 0, 1_000)
    assert rate.excess_ms(10_000, 0, 1_000, 11) == 6_000
    assert rate.excess_ms(10_000, 10_000, 1_000, 11) == 6_000
    assert rate.excess_ms(10_000, 10_999, 1_000, 11) == 5_001
    assert rate.excess_ms(10_000, 11_000, 1_000, 11) == 0, "the samples are too old"


def test_a_client_above_its_quota_is_muted() -> None:
    enforced, clock, now, muted = quotas({(("client-id", "c"),): 10_000})
    context = RequestContext(9, "c", connection_id=7)
    assert enforced.charge(PRODUCER_BYTE_RATE, context, 100_000) == 0
    assert enforced.charge(PRODUCER_BYTE_RATE, context, 50_000) == 5_000
    assert muted == [(7, 5_000)]
    assert enforced.charge(PRODUCER_BYTE_RATE, RequestContext(9, "other"), 1e9) == 0
    assert enforced.charge("consumer_byte_rate", context, 1e9) == 0
    clock.advance(11_000)
    now.update()
    assert enforced.charge(PRODUCER_BYTE_RATE, context, 100_000) == 0


@pytest.mark.parametrize("bound", [5e-324, 1e-308, 0.001])
def test_the_throttle_time_of_a_tiny_quota_fits_into_a_response(bound: float) -> None:
    """Any positive number is a valid quota. The request must not fail after its records are stored."""
    enforced, _, _, muted = quotas({(("client-id", "c"),): bound})
    context = RequestContext(9, "c", connection_id=7)
    assert enforced.charge(PRODUCER_BYTE_RATE, context, 100_000_000) == INT_MAX
    assert muted == [(7, INT_MAX)]
    assert enforced.burst(PRODUCER_BYTE_RATE, context) == 0


def test_an_infinite_quota_has_the_largest_burst() -> None:
    enforced, _, _, _ = quotas({(("client-id", "c"),): float("inf")})
    assert enforced.burst(PRODUCER_BYTE_RATE, RequestContext(9, "c")) == INT_MAX


BOTH, USER, CLIENT = (("client-id", "c"), ("user", "u")), (("user", "u"),), (("client-id", "c"),)
ORDER: list[QuotaEntity] = [
    BOTH,
    (("client-id", None), ("user", "u")),
    USER,
    (("client-id", "c"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    CLIENT,
    (("client-id", None),),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_quota_applies(first: int) -> None:
    """A quota of a (user, client id) pair precedes a quota of the user, which precedes a quota of the client id. Within
    each level, a name precedes the default.
    """
    enforced, *_ = quotas({entity: 1_000.0 + number for number, entity in enumerate(ORDER) if number >= first})
    context = RequestContext(9, "c", principal="User:u")
    found = enforced._find(PRODUCER_BYTE_RATE, context)
    assert found is not None
    measured = BOTH if len(ORDER[first]) == 2 else USER if ORDER[first][0][0] == "user" else CLIENT
    assert found == (measured, 1_000.0 + first)


def test_only_quotas_of_users_apply_to_a_client_without_id() -> None:
    """Kafka finds no quota of client ids for an empty client id, not even the default quota."""
    context = RequestContext(9, "", principal="User:u")
    pairs_and_clients: dict[QuotaEntity, float] = {
        (("client-id", None), ("user", "u")): 1.0,
        (("client-id", None), ("user", None)): 2.0,
        (("client-id", None),): 3.0,
    }
    assert quotas(pairs_and_clients)[0]._find(PRODUCER_BYTE_RATE, context) is None
    enforced, *_ = quotas({**pairs_and_clients, (("user", None),): 4.0})
    assert enforced._find(PRODUCER_BYTE_RATE, context) == (USER, 4.0)


def test_long_names_are_measured_by_a_digest() -> None:
    """Without digests, 20,000 client ids of 32 KB would take 640 MB of memory."""
    enforced, *_ = quotas({(("client-id", None),): 1.0})
    names = ["c" * 64, "c" * 65, "c" * 32_000, "c" * 31_999 + "d"]
    for name in names:
        assert enforced.charge(PRODUCER_BYTE_RATE, RequestContext(9, name), 1) == 0
    measured = [entity[0][1] or "" for _, entity in enforced._rates]
    assert [len(name) for name in measured] == [64, 129, 129, 129]
    assert len(set(measured)) == len(names)
    assert enforced.charge(PRODUCER_BYTE_RATE, RequestContext(9, names[2]), 100) > 0, "the same client as before"


def test_idle_rates_are_dropped_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for idle rates keeps a rate that still throttles. After a search that removes no rate, the limit
    rises, so the next client does not start another search.
    """
    monkeypatch.setattr(client_quotas, "MAX_RATES", 10)
    enforced, clock, now, _ = quotas({(("client-id", None),): 1.0})
    enforced._max_rates = 10
    for index in range(19):
        enforced.charge(PRODUCER_BYTE_RATE, RequestContext(9, f"c{index}"), 100)
    assert (len(enforced._rates), enforced._max_rates) == (19, 20)
    clock.advance(10_999)
    now.update()
    enforced.charge(PRODUCER_BYTE_RATE, RequestContext(9, "c0"), 1)
    clock.advance(1)
    now.update()
    enforced.charge(PRODUCER_BYTE_RATE, RequestContext(9, "new"), 1)
    assert len(enforced._rates) == 20
    enforced.charge(PRODUCER_BYTE_RATE, RequestContext(9, "newer"), 1)
    assert sorted(entity[0][1] or "" for _, entity in enforced._rates) == ["c0", "new", "newer"]


def test_nothing_is_measured_without_quotas() -> None:
    enforced, _, _, muted = quotas({})
    seen: list[bool] = []
    enforced.observe(lambda: seen.append(enforced.has(PRODUCER_BYTE_RATE)))
    assert enforced.charge(PRODUCER_BYTE_RATE, RequestContext(9, "c"), 1e12) == 0
    assert (enforced._rates, muted, seen) == ({}, [], [False])


def test_records_without_acknowledgement_count() -> None:
    """Kafka mutes the connection of a producer with acks=0, although no response can carry the throttle time."""
    plane = DataPlane()
    plane.topic("t")
    muted: list[tuple[int, int]] = []
    plane.client_quotas.mute = lambda connection_id, duration_ms: muted.append((connection_id, duration_ms))
    records = batch_of(bytes(1_000))
    plane.set_quota((("client-id", "c"),), PRODUCER_BYTE_RATE, len(records) / 20)
    request = ProduceRequest(
        acks=0,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    assert plane.send(request, 9, "c", 7) is None
    assert muted == [(7, 10_000)]


def consumer_with_quota() -> tuple[DataPlane, int, list[tuple[int, int]]]:
    """Returns a broker with four batches of equal size. The consumer's quota allows two of these batches within its ten
    windows.
    """
    plane = DataPlane()
    plane.topic("t")
    size = len(batch_of(bytes(1_000)))
    records = batch_of(bytes(1_000 + 5 - size % 5))
    size = len(records)
    assert size % 5 == 0
    for _ in range(4):
        assert produce(plane, records).error_code == 0
    muted: list[tuple[int, int]] = []
    plane.client_quotas.mute = lambda connection_id, duration_ms: muted.append((connection_id, duration_ms))
    plane.set_quota((("client-id", "c"),), CONSUMER_BYTE_RATE, size / 5)
    return plane, size, muted


def test_a_consumer_above_its_quota_gets_an_empty_response() -> None:
    """A response has at most as many bytes as the quota allows at once. The bytes of an empty response do not count."""
    plane, size, muted = consumer_with_quota()
    first = plane.call(fetch(entry(0)), 11, "c")
    assert (first.throttle_time_ms, len(data_of(first).records or b"")) == (0, 2 * size)
    for _ in range(2):
        assert plane.call(fetch(entry(2)), 11, "c") == FetchResponse(throttle_time_ms=10_000)
    assert muted == [(0, 10_000)] * 2
    other = plane.call(fetch(entry(0)), 11, "other")
    assert (other.throttle_time_ms, len(data_of(other).records or b"")) == (0, 4 * size)
    plane.clock.advance(11_000)
    plane.now.update()
    later = plane.call(fetch(entry(2)), 11, "c")
    assert (later.throttle_time_ms, len(data_of(later).records or b"")) == (0, 2 * size)


def test_a_session_outlives_a_throttled_response() -> None:
    """The next request of the session gets the records that the throttled response left out."""
    plane, size, _ = consumer_with_quota()
    opened = plane.call(fetch(entry(0), session_epoch=0), 11, "c")
    assert (opened.session_id, len(data_of(opened).records or b"")) == (1001, 2 * size)
    throttled = plane.call(fetch(entry(2), session_id=1001, session_epoch=1), 11, "c")
    assert throttled == FetchResponse(throttle_time_ms=10_000, session_id=1001)
    plane.clock.advance(11_000)
    plane.now.update()
    later = plane.call(fetch(entry(2), session_id=1001, session_epoch=2), 11, "c")
    assert (later.session_id, later.throttle_time_ms, len(data_of(later).records or b"")) == (1001, 0, 2 * size)
