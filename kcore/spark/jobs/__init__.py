"""Jobs, one a file: each has `add_arguments`, `run` and a line of help, and is called by `kcore spark` and `submit`.

Only `run` makes a session; what it calls are functions of a session and of frames.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

JOBS: Final = {
    "audit": "what must not be in logs, over their whole history",
    "rebuild": "the state of coordinators as tables, as of any moment",
    "restore-plan": "committed offsets as of any moment, as a plan for `kcore offsets apply`",
    "timeline": "rebalances, commits and transactions over time, as tables and as one page",
}
"""Name of a job -> what it gives, for people. A job `a-b` is the module `a_b` here."""


def job(name: str) -> ModuleType:
    """A job's module. Imported when it is asked for: the others need not be there to list them."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")
