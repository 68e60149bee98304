"""Log lines that requests of clients cause: the number of lines of each message is limited."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.process_logging import LINES_BURST, MAX_MESSAGES, LineLimit, limited_logger
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Outcome, Record
from tests.runtime.machines import Bench, Count, Name


class Lines:
    """A logger with a limit of lines. The test sets the time of each line."""

    def __init__(self) -> None:
        self.limit = LineLimit()
        self.now_s = 1_000.0

    def log(self, message: str, *values: object, level: int = logging.ERROR) -> str | None:
        """Logs a message. Returns the line, or None if the limit suppresses it."""
        record = logging.LogRecord("kcore.test", level, "", 0, message, values, None)
        record.created = self.now_s
        return record.getMessage() if self.limit.filter(record) else None


def test_a_message_is_written_twenty_times_and_then_once_a_second() -> None:
    lines = Lines()
    assert [lines.log("group %s failed at 100%%", n) for n in range(100)] == [
        *(f"group {n} failed at 100%" for n in range(LINES_BURST)),
        *[None] * (100 - LINES_BURST),
    ]
    lines.now_s += 1
    assert lines.log("group %s failed at 100%%", 7) == "group 7 failed at 100% (80 lines like this one suppressed)"
    assert lines.log("group %s failed at 100%%", 8) is None
    lines.now_s -= 3_600  # the system's clock was set
    assert lines.log("group %s failed at 100%%", 9) is None
    lines.now_s += 1
    assert lines.log("group %s failed at 100%%", 10) == "group 10 failed at 100% (2 lines like this one suppressed)"


def test_messages_do_not_limit_each_other_and_few_are_counted() -> None:
    lines = Lines()
    for number in range(10 * MAX_MESSAGES):
        assert lines.log(f"message {number}, 100%") == f"message {number}, 100%"
    assert len(lines.limit._by_message) == MAX_MESSAGES


def test_lines_at_level_debug_are_not_limited() -> None:
    lines = Lines()
    assert None not in [lines.log("detail", level=logging.DEBUG) for _ in range(10 * LINES_BURST)]


@pytest.mark.parametrize(
    "name",
    [
        "kcore.engine",
        "kcore.runtime.shard",
        "kcore.broker.apis.share_fetch",
        "kcore.broker.data.after_commit",
        "kcore.group.consumer.regex",
    ],
)
def test_components_that_log_for_requests_are_limited(name: str) -> None:
    __import__("kcore.runtime.failed_requests" if name == "kcore.engine" else name)
    filters = [each for each in logging.getLogger(name).filters if isinstance(each, LineLimit)]
    assert len(filters) == 1
    assert limited_logger(name).filters == filters


def at_one_time(*args: Any, **options: Any) -> logging.LogRecord:
    record = logging.LogRecord(*args, **options)
    record.created = 1.0
    return record


def test_refused_records_of_sliced_work_name_the_work(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work in slices repeatedly makes records that are too large. The log line names the work, and the number of lines
    is limited.
    """
    caplog.set_level(logging.WARNING, "kcore.runtime.shard")  # an earlier test may have changed the level
    monkeypatch.setattr(logging, "_logRecordFactory", at_one_time)
    bench = Bench(max_batch_bytes=400)

    def resolve_patterns() -> Iterator[Outcome | None]:
        while True:
            yield Outcome(records=[Record(Name(f"n{n}"), Count(n)) for n in range(100)])

    bench.shard.in_slices(resolve_patterns())
    for _ in range(200):
        bench.slices.step()
    refused = [line for line in caplog.messages if "were refused with" in line]
    work, code = resolve_patterns.__qualname__, ErrorCode.UNKNOWN_SERVER_ERROR.name
    line = (
        f"shard __counters-0: the records of the action {work} were refused with {code}, and none of them is written; "
        "an earlier line of this shard has the cause"
    )
    assert refused == [line] * LINES_BURST
    assert len(caplog.messages) == 2 * LINES_BURST
