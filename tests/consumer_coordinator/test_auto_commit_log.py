"""The log lines about failed automatic commits of members, in virtual time."""

from __future__ import annotations

import logging

import pytest

from kcore.errors import ConnectionClosedError, KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.consumer_coordinator.test_coordinators_that_err import INTERVAL_MS, T, beat, consumer, joined

COMMIT_MS = 1_000
LINE = (
    "client: an automatic commit of member {} of group g failed: {}; if other members get the partitions now, they "
    "process the records after the last commit again"
)


def result(code: int) -> OffsetCommitResponse:
    row = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[row])])


def test_the_error_of_an_automatic_commit_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """No call of the user's code returns the error. Without the log line, users would notice only that the next owner
    repeats the work.
    """
    driver = joined(consumer(lambda: {T[0]: 5}, auto_commit_ms=COMMIT_MS), 0)
    lines = []
    for code in (
        *(ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID),
        *(ErrorCode.NONE, ErrorCode.INVALID_GROUP_ID),
    ):
        driver.step(COMMIT_MS)
        driver.respond(driver.take(OffsetCommitRequest), result(code))
        lines.append(len(caplog.messages))
    assert lines == [1, 1, 2, 2, 3]
    refused = [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_GROUP_ID]
    errors = [KafkaError.of(code, None, [T[0]]) for code in refused]
    shown = [f"{type(error).__name__}: {error}" for error in errors]
    assert caplog.messages == [LINE.format(driver.machine.member_id, text) for text in shown]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_the_error_of_the_commit_before_a_revocation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    driver = joined(consumer(lambda: {T[0]: 5, T[1]: 5}, auto_commit_ms=1_000_000), 0, 1)
    driver.step(INTERVAL_MS)
    driver.beats(beat(2, 0))
    driver.step(60_000)
    driver.machine.failed(driver.take(OffsetCommitRequest), ConnectionClosedError("lost"), driver.now_ms)
    driver.step()
    assert caplog.messages == [LINE.format(driver.machine.member_id, "ConnectionClosedError: lost")]
