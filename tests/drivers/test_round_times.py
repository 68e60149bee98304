"""The measured durations of rounds, with a clock that the test sets."""

from __future__ import annotations

from kcore.metrics import Histogram, RoundTimes


class Rounds:
    """Measured rounds with a fake clock. The test sets the time of each event in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times = RoundTimes(lambda: self.now)

    def at(self, second: float) -> RoundTimes:
        self.now = second
        return self.times

    def commits_until(self, second: float) -> bool:
        self.now = second
        return True


def count_and_sum(histogram: Histogram) -> tuple[int, float]:
    return histogram.count, histogram.total


def test_times_of_a_round_with_an_inline_commit() -> None:
    rounds = Rounds()
    rounds.at(10).began()
    rounds.at(11).commit_inline(2, lambda: rounds.commits_until(15))
    times = rounds.times
    assert (count_and_sum(times.processing), count_and_sum(times.flush), count_and_sum(times.purgatory)) == (
        (1, 1.0),
        (1, 4.0),
        (2, 10.0),
    )


def test_a_flush_is_timed_from_its_own_start_during_other_rounds() -> None:
    rounds = Rounds()
    rounds.at(10).began()
    since = rounds.at(11).background_began()
    rounds.at(12).began()
    rounds.at(13).ended_without_commit()
    rounds.at(14).began()
    rounds.at(16).ended_before_commit()
    rounds.at(20).background_ended(3, since)
    times = rounds.times
    assert (count_and_sum(times.processing), count_and_sum(times.flush), count_and_sum(times.purgatory)) == (
        (3, 4.0),
        (1, 9.0),
        (3, 30.0),
    )


def test_held_responses_wait_since_the_first_of_them() -> None:
    rounds = Rounds()
    rounds.at(10).background_began()
    for second in (11, 13):
        rounds.at(second).began()
        rounds.at(second + 1).ended_before_commit()
    rounds.at(15).background_ended(0, 10)
    since = rounds.at(16).background_began()
    rounds.at(18).background_ended(2, since)
    times = rounds.times
    assert (count_and_sum(times.flush), count_and_sum(times.purgatory)) == ((1, 2.0), (2, 14.0))


def test_no_response_is_held_after_a_failed_round() -> None:
    """A failed round completes its responses. The waiting time of a later response begins with its own round."""
    rounds = Rounds()
    rounds.at(10).began()
    rounds.at(11).ended_before_commit()
    rounds.at(12).ended_without_commit()
    rounds.at(20).began()
    rounds.at(21).commit_inline(1, lambda: rounds.commits_until(22))
    assert count_and_sum(rounds.times.purgatory) == (1, 2.0)
