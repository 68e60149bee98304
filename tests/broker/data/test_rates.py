"""Rates and token buckets give the throttle times of Apache Kafka's own classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kcore.broker.data.client_quotas import Mutations
from kcore.broker.data.rates import Rate, TokenBucket
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "quota-vectors.json").read_text())
"""Random values and the throttle times that Kafka 4.3.1's `Rate`, `TokenBucket` and `QuotaUtils` gave for them."""

CHECKED, STRICT, UNCHECKED = 0, 1, 2
Steps = list[tuple[int, int, int, int]]


def throttles_of_rate(steps: Steps, bound: float, window_ms: int, samples: int) -> list[int]:
    rate = Rate()
    throttles = []
    for now_ms, value, mode, _ in steps:
        rate.record(value, now_ms, window_ms)
        throttles.append(0 if mode == UNCHECKED else rate.excess_ms(bound, now_ms, window_ms, samples))
    return throttles


def throttles_of_bucket(steps: Steps, bound: float, window_ms: int, samples: int) -> list[int]:
    bucket = TokenBucket()
    throttles = []
    for now_ms, value, mode, _ in steps:
        tokens = bucket.refill(bound, now_ms, samples * window_ms)
        mutations = Mutations(bucket, bound, tokens, strict=mode == STRICT)
        if mode == STRICT and tokens < 0:
            with pytest.raises(KafkaError) as refused:
                mutations.record(value)
            assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        else:
            mutations.record(value)
        throttles.append(mutations.throttle_ms)
    return throttles


@pytest.mark.parametrize("run", VECTORS, ids=range(len(VECTORS)))
def test_throttle_times_equal_kafkas(run: dict[str, object]) -> None:
    steps: Steps = [tuple(step) for step in run["steps"]]  # type: ignore[attr-defined]
    measure = {"rate": throttles_of_rate, "bucket": throttles_of_bucket}[str(run["kind"])]
    throttles = measure(steps, run["bound"], run["window_ms"], run["samples"])  # type: ignore[arg-type]
    assert throttles == [throttle_ms for *_, throttle_ms in steps]


def test_the_vectors_have_both_kinds_and_many_throttles() -> None:
    assert {run["kind"] for run in VECTORS} == {"rate", "bucket"}
    assert sum(step[3] > 0 for run in VECTORS for step in run["steps"]) > 500


def test_a_rate_is_idle_when_its_last_value_is_too_old() -> None:
    rate = Rate()
    assert rate.is_idle(0, 1_000, 11)
    rate.record(5, 500, 1_000)
    assert not rate.is_idle(11_499, 1_000, 11)
    assert rate.is_idle(11_500, 1_000, 11)


def test_a_bucket_with_a_debt_is_not_idle() -> None:
    bucket = TokenBucket()
    bucket.refill(1.0, 0, 11_000)
    bucket.consume(30)
    assert not bucket.is_idle(20_000, 1_000, 11), "the next refill finds a debt of nine seconds"
    bucket.refill(1.0, 20_000, 11_000)
    assert bucket.refill(1.0, 40_000, 11_000) == 11
    assert not bucket.is_idle(50_999, 1_000, 11)
    assert bucket.is_idle(51_000, 1_000, 11)
