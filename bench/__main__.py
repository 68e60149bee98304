"""`make bench`: runs the benchmarks, then writes build/bench/bench.json and build/bench/bench.md.

python -m bench [--save-baseline] [PYTEST ARGUMENTS, such as bench/test_codec.py or -k heartbeat]

Without a file or folder among the arguments, pytest collects all of bench/.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pytest

from bench.report import BASELINE, OUT, write


def main() -> int:
    """Runs pytest and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--save-baseline", action="store_true", help="later runs are compared with this one")
    parser.add_argument("--out", type=Path, default=OUT, help="where bench.json and bench.md go")
    options, rest = parser.parse_known_args()
    chosen = rest if any(Path(argument.partition("::")[0]).exists() for argument in rest) else ["bench", *rest]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        arguments = ["--benchmark-only", "--benchmark-quiet", "-q", f"--benchmark-json={results}"]
        status = int(pytest.main([*arguments, *chosen]))
        if results.exists() and results.stat().st_size:
            print(write(results, options.out, BASELINE, options.save_baseline))
            print(f"{options.out / 'bench.json'}, {options.out / 'bench.md'}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
