"""Runs one plan and returns its result."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from tools.simulate.checkers.failure import SimulationFailure
from tools.simulate.plan import Plan
from tools.simulate.world import World


class Result(NamedTuple):
    """The result of a simulation.

    Attributes:
        failure: the violated rule, or None.
        steps: the number of simulated events.
        virtual_ms: the simulated time.
        real_s: the real time that the simulation took, in seconds.
        digest: the hash of the trace.
        checks: the number of checks by checker.
    """

    failure: SimulationFailure | None
    steps: int
    virtual_ms: int
    real_s: float
    digest: str
    checks: dict[str, int]


def _make_world(plan: Plan, sink: Callable[[str], None] | None) -> World:
    if not plan.nodes:
        return World(plan, sink)
    from tools.simulate.cluster.world import ClusterWorld  # noqa: PLC0415 - only for clusters

    return ClusterWorld(plan, sink)


def run_plan(plan: Plan, sink: Callable[[str], None] | None = None) -> Result:
    """Runs a plan. An unhandled exception of the engine or a client counts as a failure of the checker "exceptions"."""
    started_s = time.perf_counter()
    world = _make_world(plan, sink)
    failure: SimulationFailure | None = None
    try:
        world.run()
    except SimulationFailure as error:
        failure = error
    except Exception as error:
        if sink is not None:
            sink(traceback.format_exc())
        frame = traceback.extract_tb(error.__traceback__)[-1]
        location = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        failure = SimulationFailure("exceptions", f"{type(error).__name__}: {error} ({location})")
        failure.__cause__ = error
    if failure is not None:
        world.trace(f"failure {failure.checker}")
    return Result(
        failure,
        world.kernel.steps,
        world.kernel.now_ms,
        time.perf_counter() - started_s,
        world.digest.hexdigest(),
        world.checks.counts,
    )
