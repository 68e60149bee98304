"""Shrinks the plan of a failing seed: fewer clients and faults, less time and a calmer network. The smaller plan must
violate a rule of the same checker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from tools.simulate.plan import Plan
from tools.simulate.run import run_plan

T = TypeVar("T")
MAX_RUNS: Final = 200


def shrink(plan: Plan, checker: str, report: Callable[[str], None], max_runs: int = MAX_RUNS) -> Plan:
    """Returns a smaller plan that violates a rule of the same checker.

    Args:
        plan: a failing plan.
        checker: the checker that found it.
        report: receives a line for each plan that is smaller and still fails.
        max_runs: the largest number of simulations.
    """
    runs = 0

    def fails(candidate: Plan) -> bool:
        nonlocal runs
        runs += 1
        failure = run_plan(candidate).failure
        return failure is not None and failure.checker == checker

    while True:
        for candidate in _candidates(plan):
            if runs >= max_runs:
                return plan
            if fails(candidate):
                plan = candidate
                report(f"run {runs}: {len(plan.clients)} clients, {len(plan.faults)} faults, {plan.trouble_ms} ms")
                break
        else:
            return plan


def _candidates(plan: Plan) -> Iterator[Plan]:
    """Yields plans that are smaller by one step. The largest steps come first."""
    for faults in _without(plan.faults):
        yield replace(plan, faults=faults)
    for clients in _without(plan.clients):
        yield replace(plan, clients=clients)
    if plan.trouble_ms > 1_000:
        yield replace(plan, trouble_ms=plan.trouble_ms // 2)
    calm = {"max_delay_ms": 1, "spike": 0.0, "spike_ms": 100, "cut": 0.0}
    if plan.weather != calm:
        yield replace(plan, weather=calm)
    if plan.background:
        yield replace(plan, background=0.0)
    if plan.store != "memory" and not plan.nodes:
        yield replace(plan, store="memory")
    if plan.round_ms > 1:
        yield replace(plan, round_ms=1)


def _without(items: list[T]) -> Iterator[list[T]]:
    """Yields the list without one of its halves, quarters, ... down to single elements."""
    size = len(items)
    while size:
        size = size // 2 if size > 1 else 0
        step = max(size, 1)
        if len(items) > 0 and (size or len(items) == 1 or step == 1):
            for start in range(0, len(items), step):
                yield items[:start] + items[start + step :]
