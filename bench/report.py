"""The report of `make bench`: one JSON file and one table from the results of pytest-benchmark.

    python -m bench.report RESULTS.json [--out FOLDER] [--baseline FILE] [--save-baseline]

A row is one benchmark: its median, its spread (the middle half of its rounds), and the ratio of its median to the
baseline stored in the repository. Machines differ and are shared. So each median is divided by the duration of a fixed
piece of pure Python that was measured in the same run (`calibrate`). A ratio of 0.5 means half the time on the same
machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

BASELINE = Path(__file__).with_name("baseline.json")
OUT = Path("build/bench")


class Row(NamedTuple):
    """One benchmark.

    Attributes:
        name: file and test, as pytest selects it below bench/.
        median_s: the median of the benchmark's rounds, in seconds per operation.
        low_s: the first quartile, in seconds per operation.
        high_s: the third quartile, in seconds per operation.
        rounds: the number of rounds.
        notes: other recorded values, such as memory, requests and server CPU.
    """

    name: str
    median_s: float
    low_s: float
    high_s: float
    rounds: int
    notes: dict[str, Any]


def calibrate() -> float:
    """Returns the CPU seconds that a fixed piece of pure Python takes now on this machine: the best of several runs.
    CPU time is used, because the time of other processes must not count as time of this piece.
    """

    def work() -> float:
        start = time.thread_time()
        squares: dict[int, str] = {}
        for number in range(50_000):
            squares[number % 1000] = str(number)
        return time.thread_time() - start

    return min(work() for _ in range(20))


def read_rows(results: Mapping[str, Any]) -> list[Row]:
    """Reads the rows of pytest-benchmark's JSON in their order. `operations` in extra_info is the number of operations
    in a round.
    """
    rows = []
    for one in results["benchmarks"]:
        stats = one["stats"]
        notes = dict(one.get("extra_info") or {})
        operations = notes.pop("operations", 1)
        name = one["fullname"].removeprefix("bench/")
        low, median, high = (stats[key] / operations for key in ("q1", "median", "q3"))
        rows.append(Row(name, median, low, high, stats["rounds"], notes))
    return rows


def as_json(rows: Iterable[Row], calibration_s: float, machine: str) -> dict[str, Any]:
    """Returns all measurements as the content of bench.json."""
    return {
        "machine": machine,
        "calibration_s": calibration_s,
        "rows": {
            row.name: {
                "median_s": row.median_s,
                "low_s": row.low_s,
                "high_s": row.high_s,
                "rounds": row.rounds,
                "notes": row.notes,
            }
            for row in rows
        },
    }


def as_baseline(rows: Iterable[Row], calibration_s: float, machine: str) -> dict[str, Any]:
    """Returns the baseline for later runs: only medians, with four significant digits."""
    medians = {row.name: float(f"{row.median_s:.4g}") for row in sorted(rows)}
    return {"machine": machine, "calibration_s": float(f"{calibration_s:.4g}"), "median_s": medians}


def ratio(row: Row, calibration_s: float, baseline: Mapping[str, Any]) -> float | None:
    """Returns the row's median relative to the baseline, normalised by the speed of the machine. Returns None without a
    baseline row.
    """
    known = baseline.get("median_s", {}).get(row.name)
    if not known:
        return None
    return float(row.median_s / calibration_s / (known / baseline["calibration_s"]))


def duration(seconds: float) -> str:
    """Formats a time with three significant digits in a suitable unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def note(value: Any) -> str:
    """Formats a value that a benchmark has recorded."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(rows: Iterable[Row], calibration_s: float, baseline: Mapping[str, Any]) -> str:
    """Renders the rows as Markdown, one table per file."""
    lines = []
    heading = ""
    for row in rows:
        file, _, test = row.name.partition("::")
        if file != heading:
            heading = file
            lines += ["", f"## {file}", "", "| | median | middle half | to the baseline | |", "|---|---|---|---|---|"]
        compared = ratio(row, calibration_s, baseline)
        cells = (
            test.removeprefix("test_").replace("|", "\\|"),
            duration(row.median_s),
            f"{duration(row.low_s)} – {duration(row.high_s)}",
            "" if compared is None else f"{compared:.2f}",
            ", ".join(f"{key} {note(value)}" for key, value in row.notes.items()),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines).lstrip("\n") + "\n"


def write(results: Path, out: Path, baseline_file: Path, save_baseline: bool) -> str:
    """Writes bench.json and bench.md into `out`, and the baseline if requested. Returns the table."""
    results_json = json.loads(results.read_text())
    rows = read_rows(results_json)
    machine = results_json["machine_info"]["cpu"].get("brand_raw") or results_json["machine_info"]["machine"]
    calibration_s = calibrate()
    baseline = json.loads(baseline_file.read_text()) if baseline_file.exists() else {}
    text = table(rows, calibration_s, baseline)
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench.json").write_text(json.dumps(as_json(rows, calibration_s, machine), indent=1) + "\n")
    (out / "bench.md").write_text(text)
    if save_baseline:
        # Rows of benchmarks that did not run keep their values, scaled to this machine.
        updated = as_baseline(rows, calibration_s, machine)
        scale = updated["calibration_s"] / baseline["calibration_s"] if baseline else 1
        previous = {name: float(f"{known * scale:.4g}") for name, known in baseline.get("median_s", {}).items()}
        updated["median_s"] = dict(sorted((previous | updated["median_s"]).items()))
        baseline_file.write_text(json.dumps(updated, indent=1) + "\n")
    return text


def main(arguments: list[str] | None = None) -> int:
    """Makes the report of existing results."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("results", type=Path, help="what pytest wrote with --benchmark-json")
    parser.add_argument("--out", type=Path, default=OUT, help="where bench.json and bench.md go")
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    parser.add_argument("--save-baseline", action="store_true", help="later runs are compared with this one")
    options = parser.parse_args(arguments)
    print(write(options.results, options.out, options.baseline, options.save_baseline))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
