"""Simulates consecutive seeds and adds their results to the record file.

    python -m tools.simulate.campaign --seconds 600

Each line of the file is one batch: the seeds from a random start, the version of the code, the number of events, and
the failures. A campaign that is stopped loses at most its unfinished batch. The next campaign adds to the same file.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tools.simulate.cluster.plan import draw_cluster_plan
from tools.simulate.plan import draw_plan
from tools.simulate.run import run_plan

RECORD: Final = Path(__file__).with_name("campaign.jsonl")
BATCH_SECONDS: Final = 60.0
CLUSTER_SHARE: Final = 0.4
"""Fraction of a campaign's batches that simulate clusters."""


@dataclass(slots=True)
class Batch:
    """The seeds of one batch and their results.

    Attributes:
        commit: the version of the code.
        first_seed: the lowest seed of the batch.
        seeds: the number of seeds, which are consecutive.
        events: the number of simulated events.
        virtual_s: the simulated time in seconds.
        processor_s: the CPU time of the batch in seconds.
        failures: "seed checker: message" of each failure.
        cluster: True if the batch simulated clusters.
    """

    commit: str
    first_seed: int
    seeds: int = 0
    events: int = 0
    virtual_s: int = 0
    processor_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    cluster: bool = False


def run_batch(
    commit: str, first_seed: int, seconds: float, most_seeds: int = 1 << 31, *, cluster: bool = False
) -> Batch:
    """Runs consecutive seeds for a time, but at least one.

    Args:
        commit: the version of the code, for the record file.
        first_seed: the lowest seed of the batch.
        seconds: the time after which no further seed starts, in seconds.
        most_seeds: the largest number of seeds.
        cluster: True to simulate clusters.
    """
    batch = Batch(commit, first_seed, cluster=cluster)
    draw = draw_cluster_plan if cluster else draw_plan
    until_s = time.monotonic() + seconds
    started_s = time.process_time()
    virtual_ms = 0
    while not batch.seeds or (time.monotonic() < until_s and batch.seeds < most_seeds):
        seed = first_seed + batch.seeds
        result = run_plan(draw(seed))
        batch.seeds += 1
        batch.events += result.steps
        virtual_ms += result.virtual_ms
        if result.failure is not None:
            batch.failures.append(f"{seed} {result.failure}"[:300])
    batch.virtual_s = virtual_ms // 1000
    batch.processor_s = round(time.process_time() - started_s, 1)
    return batch


def read_record(path: Path) -> Iterator[Batch]:
    """Yields the batches in a record file."""
    if path.exists():
        for line in path.read_text().splitlines():
            yield Batch(**json.loads(line))


def append_batch(path: Path, batch: Batch) -> None:
    """Adds a batch to a record file."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(batch)) + "\n")


def totals(path: Path) -> str:
    """Returns the sums of a record file in one line."""
    batches = list(read_record(path))
    failures = sum(len(each.failures) for each in batches)
    return (
        f"{sum(each.seeds for each in batches):,} seeds, {sum(each.events for each in batches):,} events, "
        f"{sum(each.virtual_s for each in batches) / 3600:,.0f} h simulated in "
        f"{sum(each.processor_s for each in batches) / 3600:,.1f} h of processor time, {failures} failures"
    )


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8"]
    return subprocess.run(command, cwd=RECORD.parent, capture_output=True, text=True, check=True).stdout.strip()


def _main() -> None:
    parser = argparse.ArgumentParser(description="Simulates seeds and adds them to the record.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--totals", action="store_true", help="show the sums of the record, and run nothing")
    options = parser.parse_args()
    until_s = time.monotonic() + options.seconds
    seeds = random.SystemRandom()
    commit = "" if options.totals else _commit()
    while not options.totals and (left_s := until_s - time.monotonic()) > 0:
        cluster = seeds.random() < CLUSTER_SHARE
        batch = run_batch(commit, seeds.randrange(1 << 40), min(BATCH_SECONDS, left_s), cluster=cluster)
        append_batch(options.record, batch)
        for failure in batch.failures:
            print(failure, flush=True)
        gc.collect()
    print(totals(options.record))


if __name__ == "__main__":
    _main()
