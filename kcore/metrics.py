"""What a metric is, and how metrics are written for Prometheus (text exposition format 0.0.4).

There is no registry and no library behind it: the counters are the plain integers that the engine keeps anyway, and
they are read when somebody looks. Which metrics there are stands in one table, `kcore.server.observe.METRICS`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_BOUNDS_S: Final[tuple[float, ...]] = (
    *(round(step * 10.0**power, 7) for power in range(-5, 1) for step in (1, 2.5, 5)),
    10.0,
    25.0,
)
"""10 µs to 25 s in steps of about two: a commit to memory takes some µs, one to a slow disk a second."""


class MetricKind(Enum):
    """The kinds of Prometheus; the value is what the TYPE line says."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Sample = tuple[tuple[str, ...], float]
"""The values of a metric's labels, and the number."""


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: its name; ends with the unit, counters with `_total`.
        kind: what kind of number it is.
        doc: what it counts, in a sentence.
        collect: reads it. Of a counter or gauge the samples, of a histogram the histograms, each with its labels.
        labels: the labels; each has few values, known beforehand (states, APIs, error codes, never client ids).
        kafka: the metric of Kafka that means the same; "" where Kafka has none.
    """

    name: str
    kind: MetricKind
    doc: str
    collect: Callable[[Any], Iterable[tuple[tuple[str, ...], Any]]]
    labels: tuple[str, ...] = ()
    kafka: str = ""


class Histogram:
    """How often values fell between which bounds.

    Args:
        bounds: the upper bounds, ascending; what lies above the last one is counted too.

    Attributes:
        count: how many values there were.
        total: their sum.
    """

    __slots__ = ("_bounds", "_counts", "count", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value, `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.count += times
        self.total += value * times

    def buckets(self) -> Iterator[tuple[str, int]]:
        """The upper bounds, as text, with how many values lie at or below each."""
        below = 0
        for bound, count in zip(self._bounds, self._counts, strict=False):
            below += count
            yield _number(bound), below
        yield "+Inf", self.count


class RoundTimes:
    """How long rounds take: measured twice a round, however many requests it has.

    Args:
        clock: reads seconds from any origin.

    Attributes:
        processing: from the first bytes of a round to its end: requests are decoded and decided.
        flush: a commit: batches are closed, written, made durable, and their answers made.
        purgatory: how long the answers of a round waited for its commit at most, once for each of them.
    """

    __slots__ = ("_background_since", "_began", "_clock", "_held", "flush", "processing", "purgatory")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._background_since = self._held = -1.0
        self.processing = Histogram()
        self.flush = Histogram()
        self.purgatory = Histogram()

    def began(self) -> None:
        """A round begins."""
        self._began = self._clock()

    def passed(self) -> None:
        """A round ends, and nobody waits for a commit."""
        self._processed(self._clock())
        self._held = -1.0

    def held(self) -> None:
        """A round ends, and its answers wait on: the round that departed has not landed yet."""
        began = self._processed(self._clock())
        if self._held < 0:
            self._held = began

    def background_began(self) -> float:
        """A round ends, and is written while others pass; returns since when its answers wait, for
        `background_ended`.
        """
        self._background_since = self._clock()
        return self._waiting_since(self._background_since)

    def background_ended(self, waiting: int, since: float) -> None:
        """The round that was written last in the background is durable.

        Args:
            waiting: how many answers waited for it, those included that joined while it was under way.
            since: what `background_began` returned.
        """
        if waiting:
            now = self._clock()
            self.flush.observe(now - self._background_since)
            self.purgatory.observe(now - since, waiting)

    def ended(self, waiting: int, commit: Callable[[], bool]) -> None:
        """A round ends: commits it.

        Args:
            waiting: how many answers wait for the commit.
            commit: writes the round. One that had nothing to write and nobody waiting is not counted as a flush.
        """
        started = self._clock()
        since = self._waiting_since(started)
        commit()
        if waiting:
            now = self._clock()
            self.flush.observe(now - started)
            self.purgatory.observe(now - since, waiting)

    def _processed(self, now: float) -> float:
        """Requests are decided; returns when the first of them came."""
        began = self._began if self._began >= 0 else now
        self._began = -1.0
        self.processing.observe(now - began)
        return began

    def _waiting_since(self, now: float) -> float:
        """Requests are decided; returns when the first of them came, and of those that were held before."""
        began = self._processed(now)
        since = began if self._held < 0 else self._held
        self._held = -1.0
        return since


def exposition(metrics: Iterable[Metric], source: Any) -> str:
    """Everything a scrape gets.

    Args:
        metrics: which metrics.
        source: what their `collect` functions read.

    Returns:
        Prometheus' text format.
    """
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.doc}")
        lines.append(f"# TYPE {metric.name} {metric.kind.value}")
        for values, value in metric.collect(source):
            labels = [f'{name}="{_escaped(text)}"' for name, text in zip(metric.labels, values, strict=True)]
            if metric.kind is MetricKind.HISTOGRAM:
                lines += _histogram_lines(metric.name, labels, value)
            else:
                lines.append(f"{metric.name}{_braced(labels)} {_number(value)}")
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, labels: list[str], histogram: Histogram) -> Iterator[str]:
    for bound, below in histogram.buckets():
        bucket = _braced([*labels, f'le="{bound}"'])
        yield f"{name}_bucket{bucket} {below}"
    yield f"{name}_sum{_braced(labels)} {_number(histogram.total)}"
    yield f"{name}_count{_braced(labels)} {histogram.count}"


def _braced(labels: list[str]) -> str:
    return "{" + ",".join(labels) + "}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"
