"""Runs simulations.

python -m tools.simulate --seconds 60                  random seeds, until the time is over
python -m tools.simulate --seed 7 [--trace]            one seed
python -m tools.simulate --seed 7 --shrink out.json    shrinks a failing seed to a short script
python -m tools.simulate --script out.json [--trace]   runs a script
python -m tools.simulate --planted NAME [--seed 7]     runs with a planted defect; --planted list shows all
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tools.simulate.checkers.failure import SimulationFailure
from tools.simulate.cluster.plan import draw_cluster_plan
from tools.simulate.plan import Plan, draw_plan
from tools.simulate.run import Result, run_plan


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulates a node, its disk, its network and its clients.")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seconds", type=float, default=30.0, help="the time for random seeds")
    parser.add_argument("--steps", type=int, help="the largest number of events of the time with faults")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--script", type=Path, help="run the plan in this file")
    parser.add_argument("--shrink", type=Path, help="shrink a failing seed, and write its plan to this file")
    parser.add_argument("--cluster", action="store_true", help="the seeds are those of clusters")
    parser.add_argument("--planted", help="plant a defect; 'list' lists them")
    return parser.parse_args()


def _drawing(options: argparse.Namespace) -> Callable[[int], Plan]:
    return draw_cluster_plan if options.cluster else draw_plan


def _report(plan: Plan, result: Result) -> None:
    outcome = "ok" if result.failure is None else f"FAILED {result.failure}"
    print(
        f"seed {plan.seed} {plan.store}: {result.steps} steps, {result.virtual_ms / 1000:.0f} s simulated in "
        f"{result.real_s:.2f} s, trace {result.digest[:16]}: {outcome}",
        flush=True,
    )


def _main() -> int:
    options = _options()
    planted: AbstractContextManager[None] = nullcontext()
    if options.planted:
        from tools.simulate.mutants import MUTANTS, describe  # noqa: PLC0415 - only with this option

        if options.planted == "list":
            print(describe())
            return 0
        planted = MUTANTS[options.planted].planted()
        options.cluster = options.cluster or MUTANTS[options.planted].cluster
    with planted:
        if options.script is not None:
            return _run_one(Plan.from_json(options.script.read_text()), options)
        if options.seed is not None:
            return _run_one(_drawing(options)(options.seed), options)
        return _run_many(options)


def _run_one(plan: Plan, options: argparse.Namespace) -> int:
    if options.steps is not None:
        plan.max_steps = options.steps
    result = run_plan(plan, print if options.trace else None)
    _report(plan, result)
    if result.failure is not None and options.shrink is not None:
        from tools.simulate.shrink import shrink  # noqa: PLC0415 - only with this option

        smaller = shrink(plan, result.failure.checker, print)
        options.shrink.write_text(smaller.to_json() + "\n")
    return int(result.failure is not None)


def _run_many(options: argparse.Namespace) -> int:
    until_s = time.monotonic() + options.seconds
    seeds = random.SystemRandom()
    runs = failures = steps = 0
    virtual_ms = 0
    while time.monotonic() < until_s:
        plan = _drawing(options)(seeds.randrange(1 << 32))
        if options.steps is not None:
            plan.max_steps = options.steps
        result = run_plan(plan)
        _report(plan, result)
        runs += 1
        steps += result.steps
        virtual_ms += result.virtual_ms
        failures += result.failure is not None
    print(f"{runs} seeds, {steps} steps, {virtual_ms / 1000:.0f} s simulated; {failures} failed")
    return int(failures > 0)


if __name__ == "__main__":
    try:
        sys.exit(_main())
    except SimulationFailure as error:
        sys.exit(str(error))
