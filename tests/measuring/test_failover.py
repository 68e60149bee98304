"""The arguments of `python -m bench.failover`."""

from __future__ import annotations

import sys

import pytest

from bench import failover


def test_too_few_offsets_are_refused_before_the_start_of_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,000 offsets are in 2 groups, so one of the 3 nodes would coordinate no group."""
    monkeypatch.setattr(sys, "argv", ["bench.failover", "--processes", "--offsets", "1000"])
    with pytest.raises(SystemExit) as ended:
        failover.main()
    assert ended.value.code == 2
    assert "--offsets: needs at least 10000" in capsys.readouterr().err
