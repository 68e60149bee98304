"""The exactly-once example with fewer kills. The copy is exact, although processes are killed at random times."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.seeds import SEED

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "exactly_once_copy.py"


@pytest.mark.clients
@pytest.mark.crash
@pytest.mark.seeded
def test_each_record_is_copied_once_while_server_and_copier_are_killed(tmp_path: Path) -> None:
    """Copies 10,000 records with four kills. A read_committed reader finds each record once, in order."""
    spec = importlib.util.spec_from_file_location("exactly_once_copy", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    lines = [f"KCORE_SEED={SEED}"]
    print(lines[0])
    example.demonstrate(10_000, 4, SEED, tmp_path / "data", lines.append)
    assert len(lines) == 6, lines
    assert lines[-1] == "10000 records, each once"
