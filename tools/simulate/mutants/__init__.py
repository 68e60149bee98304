"""Planted defects: small changes of Python code at run time, each of which a checker must find.

A mutant replaces attributes of modules or classes while a simulation runs. For a defect of compiled code, it replaces
Python code that the compiled code calls.
"""

from __future__ import annotations

from tools.simulate.mutants.cluster import CLUSTER_MUTANTS
from tools.simulate.mutants.coordinators import COORDINATOR_MUTANTS
from tools.simulate.mutants.group import GROUP_MUTANTS
from tools.simulate.mutants.log import LOG_MUTANTS
from tools.simulate.mutants.mutant import Mutant, findings
from tools.simulate.mutants.transaction import TRANSACTION_MUTANTS

_ALL = (*LOG_MUTANTS, *TRANSACTION_MUTANTS, *GROUP_MUTANTS, *COORDINATOR_MUTANTS, *CLUSTER_MUTANTS)
MUTANTS: dict[str, Mutant] = {each.name: each for each in _ALL}


def describe() -> str:
    """Returns a table of all mutants, as in docs/simulation.md."""
    head = ["| mutant | defect | checker | seed | steps | time |", "|---|---|---|---|---|---|"]
    rows = []
    known = findings()
    for mutant in MUTANTS.values():
        finding = known.get(mutant.name)
        where = "not found yet | | | |"
        if finding is not None:
            where = f"{finding.checker} | {finding.seed} | {finding.steps:,} | {finding.processor_s:.1f} s |"
        rows.append(f"| `{mutant.name}` | {mutant.defect} | {where}")
    return "\n".join(head + rows)
