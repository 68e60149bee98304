"""Finds a seed for each planted defect and records it: `python -m tools.simulate.find [--seeds 30] [NAME...]`.

The program skips a defect whose recorded seed still finds it.
"""

from __future__ import annotations

import argparse
import json
import time

from tools.simulate.mutants import MUTANTS
from tools.simulate.mutants.mutant import FOUND, Finding, Mutant, findings
from tools.simulate.run import run_plan


def attempt(mutant: Mutant, seed: int) -> Finding | None:
    """Runs a seed with a planted defect. Returns None if no checker finds the defect."""
    started_s = time.process_time()
    with mutant.planted():
        result = run_plan(mutant.plan(seed))
    if result.failure is None:
        return None
    print(f"{mutant.name}: seed {seed}, {result.steps} steps: {str(result.failure)[:150]}", flush=True)
    return Finding(result.failure.checker, seed, result.steps, round(time.process_time() - started_s, 1))


def _search(mutant: Mutant, seeds: int, limit_s: float) -> Finding | None:
    until_s = time.process_time() + limit_s
    for seed in range(1, seeds + 1):
        if not mutant.may_find(mutant.plan(seed)):
            continue
        finding = attempt(mutant, seed)
        if finding is not None or time.process_time() > until_s:
            return finding
    return None


def _record(name: str, finding: Finding | None) -> None:
    known: dict[str, Finding] = findings()
    if finding is None:
        known.pop(name, None)
    else:
        known[name] = finding
    lines = [f'  "{each}": {json.dumps(known[each])}' for each in MUTANTS if each in known]
    FOUND.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _main() -> None:
    parser = argparse.ArgumentParser(description="Finds and records a seed for each planted defect.")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--until", type=float, default=120.0, help="processor seconds for each defect")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for name in options.names or MUTANTS:
        known = findings().get(name)
        finding = None if known is None else attempt(MUTANTS[name], known.seed)
        if finding is None or known is None or finding.checker != known.checker:
            finding = _search(MUTANTS[name], options.seeds, options.until)
        _record(name, finding)
        if finding is None:
            print(f"{name}: not found", flush=True)


if __name__ == "__main__":
    _main()
