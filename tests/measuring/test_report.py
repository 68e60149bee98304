"""The report of `make bench`: converts pytest-benchmark's JSON to one table and one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import report

RESULTS: dict[str, Any] = {
    "machine_info": {"machine": "x86_64", "cpu": {"brand_raw": "A Processor"}},
    "benchmarks": [
        {
            "fullname": "bench/test_timer.py::test_add[wheel]",
            "extra_info": {"operations": 1000},
            "stats": {"q1": 90e-6, "median": 100e-6, "q3": 120e-6, "rounds": 300},
        },
        {
            "fullname": "bench/test_timer.py::test_add[a|b]",
            "extra_info": {"bytes": 12.3456, "shape": "long"},
            "stats": {"q1": 0.0021, "median": 0.0025, "q3": 0.0031, "rounds": 5},
        },
        {"fullname": "bench/test_start.py::test_serve", "stats": {"q1": 1.0, "median": 2.0, "q3": 3.0, "rounds": 1}},
    ],
}
BASELINE = {"machine": "x", "calibration_s": 0.010, "median_s": {"test_timer.py::test_add[wheel]": 200e-9, "old": 1.0}}


def test_the_table_has_medians_per_operation_spreads_and_ratios() -> None:
    """The report has a table of medians, with the ratio of each median to the baseline.

    This machine needs twice as long for the calibration as the baseline's machine. The ratio is therefore halved.
    """
    assert report.table(report.read_rows(RESULTS), 0.020, BASELINE) == (
        "## test_timer.py\n"
        "\n"
        "| | median | middle half | to the baseline | |\n"
        "|---|---|---|---|---|\n"
        "| add[wheel] | 100 ns | 90 ns – 120 ns | 0.25 |  |\n"
        "| add[a\\|b] | 2.5 ms | 2.1 ms – 3.1 ms |  | bytes 12.35, shape long |\n"
        "\n"
        "## test_start.py\n"
        "\n"
        "| | median | middle half | to the baseline | |\n"
        "|---|---|---|---|---|\n"
        "| serve | 2 s | 1 s – 3 s |  |  |\n"
    )


def test_times_have_a_suitable_unit() -> None:
    formatted = [report.duration(seconds) for seconds in (12.5, 1.0, 0.25, 1.5e-3, 2.345e-6, 43e-9, 0.5e-9)]
    assert formatted == ["12.5 s", "1 s", "250 ms", "1.5 ms", "2.35 µs", "43 ns", "0.5 ns"]


def test_a_row_missing_from_the_baseline_has_no_ratio() -> None:
    rows = report.read_rows(RESULTS)
    assert [report.ratio(row, 0.010, BASELINE) for row in rows] == [pytest.approx(0.5), None, None]
    assert report.ratio(rows[0], 0.010, {}) is None


def test_a_report_writes_json_a_table_and_a_baseline_that_keeps_other_rows(tmp_path: Path) -> None:
    results, baseline = tmp_path / "results.json", tmp_path / "baseline.json"
    results.write_text(json.dumps(RESULTS))
    text = report.write(results, tmp_path / "out", baseline, save_baseline=False)
    assert not baseline.exists()
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["bench.json", "bench.md"]
    assert (tmp_path / "out" / "bench.md").read_text() == text
    written = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert written["machine"] == "A Processor"
    assert written["rows"]["test_timer.py::test_add[a|b]"] == {
        "median_s": 0.0025,
        "low_s": 0.0021,
        "high_s": 0.0031,
        "rounds": 5,
        "notes": {"bytes": 12.3456, "shape": "long"},
    }
    baseline.write_text(json.dumps(BASELINE))
    assert report.main([str(results), "--out", str(tmp_path), "--baseline", str(baseline), "--save-baseline"]) == 0
    kept = json.loads(baseline.read_text())
    assert kept["median_s"].keys() == {row.name for row in report.read_rows(RESULTS)} | {"old"}
    assert kept["median_s"]["test_start.py::test_serve"] == 2.0
    assert kept["median_s"]["old"] == pytest.approx(kept["calibration_s"] / 0.010, rel=1e-3)


def test_every_row_of_the_stored_baseline_exists() -> None:
    stored = json.loads(report.BASELINE.read_text())
    assert stored["calibration_s"] > 0
    assert all(name.startswith("test_") and "::" in name and median > 0 for name, median in stored["median_s"].items())
