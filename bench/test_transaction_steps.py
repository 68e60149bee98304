"""Measures the state changes of one transaction and the encoding of their records.

The rows compare the compiled code with the reference implementation.
"""

from __future__ import annotations

from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore.protocol.records.transaction_log import TransactionLogValue
from kcore.transaction import adding, ending
from kcore.transaction.states import EMPTY
from kcore.transaction.transaction import Transaction, of_value, record_of
from kcore_ext.batch import BatchBuilder
from kcore_ext.transaction.transaction import TransactionBlock
from tests.reference import transaction as reference

NOW = 1_700_000_000_000
FIRST = (7, 7, -1, 5, -1, 60_000, EMPTY, {}, -1, NOW, 2)
PLACES = [("__consumer_offsets", 11)]


def none_left() -> None:
    return None


def compiled() -> None:
    begun = adding.add(Transaction(*FIRST), 7, 5, PLACES, 2, NOW)
    assert isinstance(begun, Transaction)
    assert ending.check_since_v5(begun, 7, 5, True) is None
    prepared = ending.prepare(begun, True, 2, NOW, none_left)
    completed = ending.complete(prepared, NOW)
    batch = BatchBuilder(1_000, base_timestamp_ms=NOW)
    for step in (begun, prepared, completed):
        TransactionBlock("application-1", step, 1, record_of).append_to(batch, NOW)


def uncompiled() -> None:
    begun = reference.add(reference.ReferenceTransaction(*FIRST), 7, 5, PLACES, 2, NOW)
    assert isinstance(begun, reference.ReferenceTransaction)
    assert reference.check_since_v5(begun, 7, 5, True) is None
    prepared = reference.prepare(begun, True, 2, NOW, none_left)
    assert prepared is not None
    completed = reference.complete(prepared, NOW)
    batch = BatchBuilder(1_000, base_timestamp_ms=NOW)
    for step in (begun, prepared, completed):
        batch.append(NOW, reference.encode_key("application-1"), step.encode_value(1))


@pytest.mark.parametrize("way", [compiled, uncompiled])
@pytest.mark.benchmark(group="steps of a transaction")
def test_begin_prepare_complete(benchmark: BenchmarkFixture, way: Any) -> None:
    """Measures the steps begin, prepare and complete with their checks, and encoding their records into a batch."""
    benchmark(way)


@pytest.mark.benchmark(group="steps of a transaction")
def test_reading_a_record(benchmark: BenchmarkFixture) -> None:
    """Measures decoding a record, as in a load."""
    begun = adding.add(Transaction(*FIRST), 7, 5, PLACES, 2, NOW)
    assert isinstance(begun, Transaction)
    data = begun.encode_value(1)
    benchmark(lambda: of_value(TransactionLogValue.decode_value(data)))
