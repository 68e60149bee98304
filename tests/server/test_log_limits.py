"""The number of log lines that clients cause is bounded, and suppressed lines are counted."""

from __future__ import annotations

import logging

from kcore.server.log_limits import ADDRESS_BURST, MAX_ADDRESSES, QUIET_S, TOTAL_BURST, TOTAL_PER_S, ClientLog, QuietLog


def test_repeated_warnings_are_counted(log_lines: list[str]) -> None:
    now_s = 0.0
    log = QuietLog(lambda: now_s)
    for number in range(5):
        log.warn("%d closes", number)
    now_s += QUIET_S
    log.warn("%d closes", 5)
    now_s += QUIET_S
    log.warn("%d closes", 6)
    assert log_lines == ["0 closes", "5 closes (4 similar warnings suppressed)", "6 closes"]


def test_each_address_has_its_own_budget(log_lines: list[str]) -> None:
    now_s = 0.0
    log = ClientLog(lambda: now_s)
    for number in range(ADDRESS_BURST + 3):
        log.log(logging.WARNING, "/1.1.1.1", "line %d", number)
    assert log_lines == [f"line {number}" for number in range(ADDRESS_BURST)]
    log_lines.clear()
    log.log(logging.WARNING, "/2.2.2.2", "other")
    now_s += 1
    log.log(logging.WARNING, "/1.1.1.1", "again")
    log.log(logging.WARNING, "/1.1.1.1", "too soon")
    assert log_lines == ["other", "again (3 log lines about this address suppressed)"]


def test_all_addresses_together_have_a_budget(log_lines: list[str]) -> None:
    """All addresses together have a limit of log lines, so that a client with many addresses cannot fill the log."""
    now_s = 0.0
    log = ClientLog(lambda: now_s)
    for number in range(3 * MAX_ADDRESSES):
        log.log(logging.WARNING, f"/{number}", "line")
    assert len(log_lines) == TOTAL_BURST
    assert len(log._by_host) == MAX_ADDRESSES
    now_s += 2
    for number in range(3 * MAX_ADDRESSES):
        log.log(logging.WARNING, f"/{number}", "line")
    assert len(log_lines) == TOTAL_BURST + 2 * TOTAL_PER_S


def test_lines_below_the_level_cost_no_budget(log_lines: list[str]) -> None:
    log = ClientLog(lambda: 0.0)
    for _ in range(2 * ADDRESS_BURST):
        log.log(logging.DEBUG, "/1.1.1.1", "hidden")
    log.log(logging.WARNING, "/1.1.1.1", "shown")
    assert log_lines == ["shown"]
