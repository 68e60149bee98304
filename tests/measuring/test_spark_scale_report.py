"""The page and the plot of `bench.spark_scale_report`."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from bench.spark_scale_report import (
    BEGIN,
    COUNT,
    DAY,
    DAY_WITH_CHECKPOINTS,
    EMPTY_DAY,
    EMPTY_DAY_WITH_CHECKPOINTS,
    END,
    LOCAL,
    ONE_PROCESS,
    PEER,
    PLOT,
    START,
    THROUGH_SPARK,
    plot,
    results_of,
    written,
)


def line(job: str, where: str, events: int, cpu_s: float, **peak_mb: int) -> str:
    fields: dict[str, Any] = {"job": job, "where": where, "events": events, "wall_s": cpu_s / 2, "cpu_s": cpu_s}
    shares = {"shares": {"reading": 1.0, "replaying": 3.0}} if job == ONE_PROCESS else {}
    return json.dumps({**fields, **shares, "events_per_cpu_s": 1, "peak_mb": peak_mb})


RESULTS = results_of(
    [
        "a line of a log",
        line(THROUGH_SPARK, "local[2]", 1_000_000, 9.0),
        line(THROUGH_SPARK, "local[2]", 1_000_000, 2.0, java=700, python=150),
        line(LOCAL, "local[2]", 1_000_000, 1.25, java=700, python=150),
        line(LOCAL, "local[2]", 10_000_000, 10.25, java=700, python=151),
        line(THROUGH_SPARK, "local[2]", 10_000_000, 5.0, java=900, python=151),
        line(THROUGH_SPARK, "cluster", 10_000_000, 8.0, java=500),
        line(START, "local[2]", 10_000_000, 0.25),
        line(DAY, "local[2]", 10_000_000, 0.5),
        line(EMPTY_DAY, "local[2]", 10_000_000, 0.4),
        line(DAY_WITH_CHECKPOINTS, "local[2]", 10_000_000, 0.6),
        line(EMPTY_DAY_WITH_CHECKPOINTS, "local[2]", 10_000_000, 0.5),
        line(ONE_PROCESS, "local[2]", 10_000_000, 4.0),
        line(COUNT, "local[2]", 10_000_000, 0.8),
        line(PEER, "local[2]", 10_000, 0.5),
    ]
)

PAGE = f"""
![CPU seconds of the jobs by events in the log]({PLOT})

CPU seconds, and in parentheses millions of events per CPU second. The count is a Spark SQL job over the same keys.

| job | where | 1 million | 10 million |
| --- | --- | --: | --: |
| count (Spark SQL) | local[2] |  | 0.8 (12.50) |
| rebuild through Spark's readers and writers | local[2] | 2.0 (0.50) | 5.0 (2.00) |
| rebuild of a local folder | local[2] | 1.2 (0.80) | 10.2 (0.98) |
| the work of all tasks, without Spark | local[2] |  | 4.0 (2.50) |
| rebuild of the last 1 % | local[2] |  | 0.5 |
| rebuild of the last 1 %, with checkpoints | local[2] |  | 0.6 |
| rebuild of an empty day | local[2] |  | 0.4 |
| rebuild of an empty day, with checkpoints | local[2] |  | 0.5 |
| rebuild of a small log | local[2] |  | 0.2 |
| rebuild through Spark's readers and writers | cluster |  | 8.0 (1.25) |

Wall seconds:

| job | where | 1 million | 10 million |
| --- | --- | --: | --: |
| count (Spark SQL) | local[2] |  | 0.4 |
| rebuild through Spark's readers and writers | local[2] | 1.0 | 2.5 |
| rebuild of a local folder | local[2] | 0.6 | 5.1 |
| the work of all tasks, without Spark | local[2] |  | 2.0 |
| rebuild of the last 1 % | local[2] |  | 0.2 |
| rebuild of the last 1 %, with checkpoints | local[2] |  | 0.3 |
| rebuild of an empty day | local[2] |  | 0.2 |
| rebuild of an empty day, with checkpoints | local[2] |  | 0.2 |
| rebuild of a small log | local[2] |  | 0.1 |
| rebuild through Spark's readers and writers | cluster |  | 4.0 |

Peak memory of the largest process of each program, in MB:

| job | where | 1 million | 10 million |
| --- | --- | --: | --: |
| rebuild through Spark's readers and writers | local[2] | java 700, python 150 | java 900, python 151 |
| rebuild of a local folder | local[2] | java 700, python 150 | java 700, python 151 |
| rebuild through Spark's readers and writers | cluster |  | java 500 |

The work of all tasks at 10 million, without Spark: reading 25 %, replaying 75 %.

The next table has the CPU time of a run over the last 1 % of a log, in percent of the CPU time of a rebuild of the \
whole local folder. Both times are without startup costs. The startup costs of the whole rebuild are those of a small \
log. Those of the last 1 % are estimated twice: by a rebuild of a small log, and by the same job over an empty day.

| job | events | startup of a small log | startup of an empty day |
| --- | --- | --: | --: |
| rebuild of the last 1 % | 10 million | 2.5 % | 1.0 % |
| rebuild of the last 1 %, with checkpoints | 10 million | 3.5 % | 1.0 % |

kafka-python with pandas reads 10,000 events, 1 % of 1 million, in 0.5 CPU seconds: 0.020 million per CPU second.

"""


def test_the_tables_replace_those_between_the_marks() -> None:
    """The tables show the newest line of each job. A second run of the report leaves the page unchanged."""
    page = written(f"before\n{BEGIN}old\n{END}after\n", RESULTS)
    assert page == f"before\n{BEGIN}{PAGE}{END}after\n"
    assert written(page, RESULTS) == page


def test_the_plot_has_a_line_for_each_job_and_location() -> None:
    root = ElementTree.fromstring(plot(RESULTS))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    points = sorted(len((one.get("points") or "").split()) for one in lines)
    assert points == [1, 1, 1, 2, 2]
