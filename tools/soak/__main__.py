"""Runs clients and faults against a server process, with a checker that shares no code with the server.

    python -m tools.soak --seconds 600
    python -m tools.soak --seconds 60 --seed 7 --faults kill,term

Twelve clients commit offsets, write idempotent batches and transactions of both versions, read committed data, and
are members of groups of both protocols. Meanwhile, the program kills, stops and pauses the server, and denies memory
to it. It checks that

- every acknowledged write is present after each restart, once and in order,
- transactions are atomic, and aborted transactions are never visible,
- a partition has one owner,
- epochs, offsets and the last stable offset never decrease,
- each request gets a response, or its connection is closed,
- the log is not damaged.

If a check fails, the exit status is 1, and the program keeps the data folder.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tools.soak.run import soak

KINDS = ["kill", "term", "pause", "memory"]


def main() -> int:
    """Runs the soak test. Returns 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description="Soak test with an independent checker.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults happen")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--faults", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--keep", action="store_true", help="keep the folder in any case")
    options = parser.parse_args()
    kinds = options.faults.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown faults: {', '.join(sorted(unknown))}")
    folder = Path(tempfile.mkdtemp(prefix="kcore-soak-"))
    print(f"seed {options.seed}, folder {folder}", flush=True)
    ledger = soak(folder, options.seconds, options.seed, kinds)
    for name, count in sorted(ledger.counts.items()):
        print(f"{count:9d}  {name}")
    for kind, count in sorted(ledger.kinds.items()):
        print(f"{count:9d}  VIOLATIONS: {kind}")
    if ledger.kinds or options.keep:
        print(f"seed {options.seed}: the data folder and the server's log are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if ledger.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
