"""A participant takes part in a round once, however often it enlists."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kcore.log.errors import LogError
from kcore.runtime.commit import CommitPipeline
from kcore_ext.runtime.shard import ParticipantCore
from tests.runtime.machines import Bench


class Plain:
    """A participant in Python. Records the calls of the pipeline."""

    allows_background_commit = True

    def __init__(self) -> None:
        self.calls: list[str] = []

    def seal(self) -> None:
        self.calls.append("seal")

    def committed(self) -> None:
        self.calls.append("committed")

    def failed(self, error: LogError) -> None:
        self.calls.append("failed")


class Compiled(Plain, ParticipantCore):
    """The same, with the compiled base of shards and partitions."""

    def __init__(self) -> None:
        super().__init__()
        ParticipantCore.allows_background_commit.__set__(self, True)  # type: ignore[attr-defined]


kinds = pytest.mark.parametrize("kind", [Plain, Compiled])
Kind = Callable[[], Any]


@kinds
def test_a_participant_that_enlists_twice_is_committed_once(kind: Kind) -> None:
    pipeline, participant, other = Bench().pipeline, kind(), kind()
    for round_ in range(1, 4):
        for each in (participant, other, participant):
            pipeline.enlist(each)
        assert pipeline.commit()
        assert participant.calls == other.calls == ["seal", "committed"] * round_


@kinds
def test_a_participant_enlists_in_the_next_round_during_a_background_commit(kind: Kind) -> None:
    bench, participant = Bench(), kind()
    bench.pipeline.enlist(participant)
    bench.run("add", "a", 1)
    background = bench.pipeline.start_background(threading.Lock())
    assert background is not None
    bench.pipeline.enlist(participant)
    background.write()
    assert bench.pipeline.finish_background(background)
    assert bench.pipeline.dirty
    assert bench.pipeline.commit()
    assert participant.calls == ["seal", "committed"] * 2


@kinds
def test_a_participant_of_two_failed_rounds_is_reset_once(kind: Kind) -> None:
    bench, participant = Bench(), kind()
    bench.pipeline.enlist(participant)
    bench.run("add", "a", 1)
    background = bench.pipeline.start_background(threading.Lock())
    assert background is not None
    bench.pipeline.enlist(participant)
    bench.log.failures_left = 1
    background.write()
    assert not bench.pipeline.finish_background(background)
    assert participant.calls == ["seal", "failed"]


@kinds
def test_a_round_that_is_given_back_has_each_participant_once(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is given back if the log cannot seal it for a background commit. Its commit then fails."""
    bench, participant, late = Bench(), kind(), kind()
    bench.pipeline.enlist(participant)
    bench.run("add", "a", 1)

    def seal() -> None:
        raise LogError("no write set")

    monkeypatch.setattr(bench.log, "seal", seal)
    assert bench.pipeline.start_background(threading.Lock()) is None
    monkeypatch.undo()
    for each in (participant, late, late):
        bench.pipeline.enlist(each)
    assert not bench.pipeline.commit()
    assert (participant.calls, late.calls) == (["seal", "seal", "failed"], ["seal", "failed"])


@kinds
def test_a_participant_can_enlist_in_another_pipeline(kind: Kind) -> None:
    """A pipeline that is given up does not keep its participants from another pipeline."""
    participant = kind()
    pipelines: list[CommitPipeline] = [Bench().pipeline for _ in range(2)]
    for pipeline in pipelines:
        pipeline.enlist(participant)
    assert all(pipeline.commit() for pipeline in pipelines)
    assert participant.calls == ["seal", "committed"] * 2


def test_the_participants_of_two_failed_rounds_are_not_compared_in_pairs() -> None:
    """With 10,000 partitions in each round, the comparisons of all pairs would stop the node for seconds."""
    comparisons: list[object] = []

    class Compared(Compiled):
        """A participant that records when it is compared with another one."""

        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            comparisons.append(other)
            return self is other

    bench, participants = Bench(), [Compared() for _ in range(20)]
    for each in participants[:10]:
        bench.pipeline.enlist(each)
    bench.run("add", "a", 1)
    background = bench.pipeline.start_background(threading.Lock())
    assert background is not None
    for each in participants[5:]:
        bench.pipeline.enlist(each)
    bench.log.failures_left = 1
    background.write()
    assert not bench.pipeline.finish_background(background)
    assert [each.calls[-1] for each in participants] == ["failed"] * 20
    assert len(comparisons) < 20
