"""The jobs that `kcore spark` and `submit` run. Each module is one job, with the functions `add_arguments` and `run`.

Only `run` creates a session. It passes the session to functions, which return or accept DataFrames.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

JOBS: Final = {
    "audit": "check the history of logs for violated invariants",
    "rebuild": "rebuild coordinator state as tables, as of any moment",
    "restore-plan": "plan the restore of committed offsets as of any moment, for `kcore offsets apply`",
    "timeline": "show rebalances, commits and transactions over time, as tables and as an HTML page",
    "watch": "keep tables of state, history, findings, lag and alerts up to date, as a stream",
}
"""Name of a job -> its help text. The module of a job `a-b` is `a_b`."""


def job(name: str) -> ModuleType:
    """Imports the module of a job and returns it. `JOBS` can be imported without the dependencies of the job."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")
