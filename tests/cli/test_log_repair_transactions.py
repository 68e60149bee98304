"""`kcore log repair` of a folder with transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

import kcore
from kcore.protocol.records import TRANSACTION_STATE
from kcore.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from tests.cli.test_log_repair import SETTINGS, Run, repair
from tests.cli.test_log_verify import change, records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with kcore.open(path, config={**SETTINGS, "transaction.state.log.num.partitions": "1"}) as node:
        node.topics.create("lines")
        with node.transaction("writer") as transaction:
            transaction.append("lines", "in a transaction")
    return path


def test_a_sound_folder_with_transactions_is_left_alone(run: Run, folder: Path) -> None:
    ran = run("log", "repair", folder, "--yes")
    assert (ran.status, ran.out) == (0, "the folder needs no repair\n")


def test_records_that_a_transaction_coordinator_cannot_replay_are_skipped(run: Run, folder: Path) -> None:
    key = TransactionLogKey(transactional_id="other").encode_key()
    unknown_state = TransactionLogValue(producer_id=7, transaction_status=99, transaction_partitions=None)
    change(folder, TRANSACTION_STATE, lambda log: log.append(records((key, unknown_state.encode_value(0))), 5))
    losses = repair(run, folder)
    assert [loss["loss"] for loss in losses] == ["record"]
    with kcore.open(folder, config=SETTINGS, create=False) as node:
        assert [each.transactional_id for each in node.transactions.list()] == ["writer"]
