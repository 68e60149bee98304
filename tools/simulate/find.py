"""Finds the first seed that finds each planted defect: `python -m tools.simulate.find [SEEDS] [NAME...]`."""

from __future__ import annotations

import sys

from tools.simulate.mutants import MUTANTS
from tools.simulate.plan import draw_plan
from tools.simulate.run import run_plan


def _main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    for name in sys.argv[2:] or MUTANTS:
        for seed in range(1, most + 1):
            with MUTANTS[name].planted():
                result = run_plan(draw_plan(seed))
            if result.failure is not None:
                message = str(result.failure)[:150]
                print(f"{name}: seed {seed}, {result.steps} steps, {result.real_s:.1f} s: {message}", flush=True)
                break
        else:
            print(f"{name}: not found by {most} seeds", flush=True)


if __name__ == "__main__":
    _main()
