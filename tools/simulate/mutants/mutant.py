"""Planted defects, and the recorded seeds that find them (`found.json`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.simulate.cluster.plan import draw_cluster_plan
from tools.simulate.plan import Plan, draw_plan

Patch = tuple[Any, str, Any]
"""Type of a replaced attribute: (owner of the attribute, its name, its new value)."""


FOUND: Final = Path(__file__).with_name("found.json")


class Finding(NamedTuple):
    """The seed that finds a planted defect.

    Attributes:
        checker: the checker that finds the defect.
        seed: the seed of the simulation.
        steps: the number of events until the checker finds the defect.
        processor_s: the CPU time until then, in seconds.
    """

    checker: str
    seed: int
    steps: int
    processor_s: float


def findings() -> dict[str, Finding]:
    """Returns the known findings by the name of the planted defect."""
    return {name: Finding(*values) for name, values in json.loads(FOUND.read_text()).items()}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted defect.

    Attributes:
        name: the name of the defect on the command line.
        defect: the defect in a few words.
        patches: returns the replacements of attributes.
        cluster: True if the defect needs a simulation of a cluster.
        needs: names of the store, topics, client kinds and fault kinds that a plan must have to find the defect.
    """

    name: str
    defect: str
    patches: Callable[[], list[Patch]]
    cluster: bool = False
    needs: tuple[str, ...] = ()

    def may_find(self, plan: Plan) -> bool:
        """Returns True if a plan has everything that `needs` names."""
        present = {
            plan.store,
            *plan.topics,
            *(each.kind for each in plan.clients),
            *(each.kind for each in plan.faults),
        }
        return present.issuperset(self.needs)

    def plan(self, seed: int) -> Plan:
        """Returns the plan of a seed: a plan for a cluster if `cluster` is True, otherwise for a single node."""
        return draw_cluster_plan(seed) if self.cluster else draw_plan(seed)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plants the defect for the duration of the block."""
        replaced: list[Patch] = []
        try:
            for owner, name, value in self.patches():
                replaced.append((owner, name, owner.__dict__[name]))
                setattr(owner, name, value)
            yield
        finally:
            for owner, name, value in reversed(replaced):
                setattr(owner, name, value)
