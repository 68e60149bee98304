"""Writes the results of `bench.spark_scale` to docs/spark.md, as tables and a plot.

    python -m bench.spark_scale_report RESULTS

RESULTS has the lines that `bench.spark_scale` printed, of any number of runs. The newest line of a job counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from math import log10
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

COUNT = "count (Spark SQL)"
FIRST = "rebuild, first of the session"
THROUGH_SPARK = "rebuild through Spark's readers and writers"
LOCAL = "rebuild of a local folder"
START = "rebuild of a small log"
BEFORE = "rebuild to 99 %, with checkpoints"
DAY = "rebuild of the last 1 %"
DAY_WITH_CHECKPOINTS = "rebuild of the last 1 %, with checkpoints"
EMPTY_DAY = "rebuild of an empty day"
EMPTY_DAY_WITH_CHECKPOINTS = "rebuild of an empty day, with checkpoints"
ONE_PROCESS = "the work of all tasks, without Spark"
PEER = "kafka-python and pandas"

READING, REPLAYING, ROWS, WRITING = "reading Parquet", "decoding and replaying", "rows of tables", "writing Parquet"
"""Names of the parts of the job `ONE_PROCESS`. The benchmark measures the processor time of each part."""

DOCS = Path(__file__).parents[1] / "docs"
BEGIN = "<!-- bench.spark_scale_report: begin -->\n"
END = "<!-- bench.spark_scale_report: end -->\n"
PLOT = "spark-scale.svg"
DAYS = {DAY: EMPTY_DAY, DAY_WITH_CHECKPOINTS: EMPTY_DAY_WITH_CHECKPOINTS}
"""Name of a job that continues a rebuild with a day of events -> name of the same job without new events."""
JOBS = (COUNT, FIRST, THROUGH_SPARK, LOCAL, ONE_PROCESS, BEFORE, *DAYS, *DAYS.values(), START)
COLOURS = ("#3465a4", "#4e9a06", "#cc0000", "#75507b", "#c17d11", "#555753")
WIDTH, HEIGHT, LEFT, FOOT, TOP, RIGHT = 760, 380, 60, 40, 16, 16


class Line(NamedTuple):
    """A line of the results. The fields are those of `bench.spark_scale.report`."""

    job: str
    where: str
    events: int
    wall_s: float
    cpu_s: float
    peak_mb: dict[str, int]
    shares: Mapping[str, float] = MappingProxyType({})


Results = dict[tuple[str, str, int], Line]
"""Type of the results: (job, place, number of events) -> the newest line of the output with these values."""


def results_of(texts: Iterable[str]) -> Results:
    """Returns the results in lines of JSON. Skips other lines, such as log lines."""
    newest: Results = {}
    for text in texts:
        if text.startswith("{"):
            fields: dict[str, Any] = json.loads(text)
            line = Line(**{name: fields[name] for name in Line._fields if name in fields})
            newest[line.job, line.where, line.events] = line
    return newest


def millions(events: int) -> str:
    """Returns a number of events for a heading."""
    return f"{events / 1e6:g} million"


def rows_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table, in which all columns except the first two are numbers."""
    lines = [head, ["---", "---", *["--:"] * (len(head) - 2)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables(results: Results) -> str:
    """Returns the tables: processor seconds with rates, wall seconds, and memory."""
    sizes = sorted({events for job, _, events in results if job == THROUGH_SPARK})
    places = sorted({where for job, where, _ in results if job == THROUGH_SPARK}, key=lambda name: name == "cluster")

    def cells(job: str, where: str, show: Any) -> list[str]:
        lines = [results.get((job, where, events)) for events in sizes]
        return ["" if line is None else show(line) for line in lines]

    def table(show: Any, jobs: Sequence[str] = JOBS) -> str:
        head = ["job", "where", *map(millions, sizes)]
        rows = [[job, where, *cells(job, where, show)] for where in places for job in jobs]
        return rows_of(head, [row for row in rows if any(row[2:])])

    def cpu(line: Line) -> str:
        rate = "" if line.job in (START, *DAYS, *DAYS.values()) else f" ({line.events / line.cpu_s / 1e6:.2f})"
        return f"{line.cpu_s:.1f}{rate}"

    def memory(line: Line) -> str:
        return ", ".join(f"{name} {mb}" for name, mb in line.peak_mb.items())

    parts = [
        "CPU seconds, and in parentheses millions of events per CPU second. The count is a Spark SQL job over "
        "the same keys.\n\n",
        table(cpu),
        "\nWall seconds:\n\n",
        table(lambda line: f"{line.wall_s:.1f}"),
        "\nPeak memory of the largest process of each program, in MB:\n\n",
        table(memory, (THROUGH_SPARK, LOCAL)),
    ]
    for line in sorted(results.values(), key=lambda line: line.events):
        if line.shares:
            texts = [f"{part} {100 * cpu_s / sum(line.shares.values()):.0f} %" for part, cpu_s in line.shares.items()]
            parts.append(f"\nThe work of all tasks at {millions(line.events)}, without Spark: {', '.join(texts)}.\n")
    shares = [row for events in sizes for row in day_shares(results, events)]
    if shares:
        head = ["job", "events", "startup of a small log", "startup of an empty day"]
        parts += [
            "\nThe next table has the CPU time of a run over the last 1 % of a log, in percent of the CPU time of a "
            "rebuild of the whole local folder. Both times are without startup costs. The startup costs of the whole "
            "rebuild are those of a small log. Those of the last 1 % are estimated twice: by a rebuild of a small log, "
            "and by the same job over an empty day.\n\n",
            rows_of(head, shares),
        ]
    peers = [line for line in results.values() if line.job == PEER]
    parts += [
        f"\nkafka-python with pandas reads {line.events:,} events, 1 % of {millions(100 * line.events)}, in "
        f"{line.cpu_s:.1f} CPU seconds: {line.events / line.cpu_s / 1e6:.3f} million per CPU second.\n"
        for line in sorted(peers, key=lambda line: line.events)
    ]
    return "".join(parts)


def day_shares(results: Results, events: int) -> Iterator[list[str]]:
    """Yields rows with the CPU time of a run over one day, in percent of the CPU time of a run over the whole log.

    Both CPU times are without startup costs. For the day, there are two estimates of the startup costs: the CPU time of
    a rebuild of a small log, and that of the same job over a day without events. Only the second estimate includes
    loading the earlier state.
    """
    lines = {job: line.cpu_s for (job, where, size), line in results.items() if size == events and where != "cluster"}
    if not {LOCAL, START, *DAYS, *DAYS.values()} <= lines.keys():
        return
    whole_s = lines[LOCAL] - lines[START]
    for day, empty in DAYS.items():
        small, same = (100 * (lines[day] - start_s) / whole_s for start_s in (lines[START], lines[empty]))
        yield [day, millions(events), f"{small:.1f} %", f"{same:.1f} %"]


def plot(results: Results) -> str:
    """Returns an SVG plot of CPU seconds over events. Both axes are logarithmic."""
    shown = [line for line in results.values() if line.job in (COUNT, THROUGH_SPARK, LOCAL, DAY)]
    series = sorted({(line.job, line.where) for line in shown}, key=lambda key: (key[1] == "cluster", key))
    low_x, high_x = (log10(bound(line.events for line in shown)) for bound in (min, max))
    low_y, high_y = (log10(bound(line.cpu_s for line in shown)) for bound in (min, max))

    def x(events: float) -> float:
        return LEFT + (log10(events) - low_x) / max(high_x - low_x, 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(seconds: float) -> float:
        return HEIGHT - FOOT - (log10(seconds) - low_y) / max(high_y - low_y, 1e-9) * (HEIGHT - FOOT - TOP)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for seconds in (10.0**n * m for n in range(-2, 5) for m in (1, 3)):
        if low_y <= log10(seconds) <= high_y:
            at = y(seconds)
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
            parts.append(_text(LEFT - 6, at + 4, f"{seconds:g} s", "end"))
    for events in sorted({line.events for line in shown}):
        anchor = "start" if log10(events) == low_x else "end" if log10(events) == high_x else "middle"
        parts.append(_text(x(events), HEIGHT - FOOT + 18, millions(events), anchor))
    for index, (job, where) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        points = sorted((line.events, line.cpu_s) for line in shown if (line.job, line.where) == (job, where))
        path = " ".join(f"{x(events):.1f},{y(seconds):.1f}" for events, seconds in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(e):.1f}" cy="{y(s):.1f}" r="3" fill="{colour}"/>' for e, s in points]
        parts.append(_text(LEFT + 10, TOP + 14 + 16 * index, f"{job}, {where}", "start", colour))
    parts.append(_text(LEFT, HEIGHT - 6, "CPU seconds by events in the log", "start"))
    return "\n".join([*parts, "</svg>\n"])


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333") -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" font-size="12"'
    return f'<text {attributes} text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def written(page: str, results: Results) -> str:
    """Returns the text of docs/spark.md, with new tables between the markers `BEGIN` and `END`."""
    before, _, remainder = page.partition(BEGIN)
    _, mark, after = remainder.partition(END)
    assert mark, f"the page lacks {BEGIN.strip()} or {END.strip()}"
    image = f"![CPU seconds of the jobs by events in the log]({PLOT})\n\n"
    return f"{before}{BEGIN}\n{image}{tables(results)}\n{END}{after}"


def main() -> None:
    """Writes the page and the plot."""
    results = results_of(Path(sys.argv[1]).read_text().splitlines())
    page = DOCS / "spark.md"
    page.write_text(written(page.read_text(), results))
    (DOCS / PLOT).write_text(plot(results))


if __name__ == "__main__":
    main()
