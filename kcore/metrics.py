"""Metrics, and their output for Prometheus (text exposition format 0.0.4).

There is no registry and no library: the components of the engine have the counters as integers, and a scrape reads
them. The table `kcore.server.observe.METRICS` lists all metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

SLICE_LINES: Final = 500
"""Number of lines that one slice of a scrape renders."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_BOUNDS_S: Final[tuple[float, ...]] = (
    *(round(step * 10.0**power, 7) for power in range(-5, 1) for step in (1, 2.5, 5)),
    10.0,
    25.0,
)
"""Bucket bounds of latencies, from 10 µs to 25 s. Each bound is about twice the previous.

A commit in memory takes a few µs; a commit to a slow disk takes up to a second.
"""


class MetricKind(Enum):
    """The metric types of Prometheus; the value appears in the TYPE line."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Sample = tuple[tuple[str, ...], float]
"""One sample of a metric: the values of the metric's labels, and the measured number."""


class Metric(NamedTuple):
    """The definition of one Prometheus metric.

    Attributes:
        name: the metric's name in the output. It ends with the unit; the name of a counter ends with `_total`.
        kind: the metric's type.
        doc: the help text in the output: a sentence with the meaning of the metric.
        collect: reads the metric's samples from the source. Each sample is a pair (the values of the labels, the
            measured value). The measured value is a number, or a `Histogram` if the kind is HISTOGRAM.
        labels: the names of the labels. Each label has few possible values, such as states, APIs or error codes, but
            never client ids.
        kafka: the equivalent metric of Kafka; "" if there is none.
        many: True if `collect` yields so many samples that the output is written in parts, with pauses in which the
            source may change. False: all samples are read at once.
    """

    name: str
    kind: MetricKind
    doc: str
    collect: Callable[[Any], Iterable[tuple[tuple[str, ...], Any]]]
    labels: tuple[str, ...] = ()
    kafka: str = ""
    many: bool = False


class Histogram:
    """A histogram: the number of values in each bucket.

    Args:
        bounds: the upper bounds of the buckets, ascending. Values above the last bound are counted, too.

    Attributes:
        count: the number of values.
        total: the sum of the values.
    """

    __slots__ = ("_bounds", "_counts", "count", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    @classmethod
    def of(cls, bounds: tuple[float, ...], counts: list[int], total: float) -> Histogram:
        """Makes a histogram from counts: one count for each bound, and one count for values above the last bound."""
        histogram = cls(bounds)
        histogram._counts = counts
        histogram.count = sum(counts)
        histogram.total = total
        return histogram

    def observe(self, value: float, times: int = 1) -> None:
        """Adds a value to the histogram, `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.count += times
        self.total += value * times

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yields each upper bound, as text, with the number of values at or below it."""
        below = 0
        for bound, count in zip(self._bounds, self._counts, strict=False):
            below += count
            yield _number(bound), below
        yield "+Inf", self.count


class RoundTimes:
    """The durations of rounds. The clock is read twice in each round, independent of the number of requests.

    Args:
        clock: returns seconds from any origin.

    Attributes:
        processing: the times from the first bytes of a round to its end, for decoding and processing its requests.
        flush: the times of commits: closing batches, writing them, making them durable, and completing the responses.
        purgatory: the times for which responses waited for a commit. Each response of a round counts with the longest
            time in the round.
    """

    __slots__ = ("_background_since", "_began", "_clock", "_held", "flush", "processing", "purgatory")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._background_since = self._held = -1.0
        self.processing = Histogram()
        self.flush = Histogram()
        self.purgatory = Histogram()

    def began(self) -> None:
        """Marks the beginning of a round."""
        self._began = self._clock()

    def ended_without_commit(self) -> None:
        """Marks the end of a round whose responses wait for no commit."""
        self._processed(self._clock())
        self._held = -1.0

    def ended_before_commit(self) -> None:
        """Marks the end of a turn that commits nothing, although responses wait: a later turn commits their round."""
        began = self._processed(self._clock())
        if self._held < 0:
            self._held = began

    def background_began(self) -> float:
        """Marks the start of a background commit.

        Returns:
            The time since which the responses of the commit wait, for `background_ended`.
        """
        self._background_since = self._clock()
        return self._waiting_since(self._background_since)

    def background_ended(self, waiting: int, since: float) -> None:
        """Marks the end of the last background commit.

        Args:
            waiting: the number of responses that waited for the commit, including responses that were added while it
                was being written.
            since: the result of `background_began`.
        """
        if waiting:
            now = self._clock()
            self.flush.observe(now - self._background_since)
            self.purgatory.observe(now - since, waiting)

    def commit_inline(self, waiting: int, commit: Callable[[], bool]) -> None:
        """Commits a round on the calling thread, and measures the commit.

        Args:
            waiting: the number of responses that wait for the commit; if it is 0, the commit is not counted.
            commit: writes the round.
        """
        started = self._clock()
        since = self._waiting_since(started)
        commit()
        if waiting:
            now = self._clock()
            self.flush.observe(now - started)
            self.purgatory.observe(now - since, waiting)

    def _processed(self, now: float) -> float:
        """Measures the processing of a round; returns the time at which its first request arrived."""
        began = self._began if self._began >= 0 else now
        self._began = -1.0
        self.processing.observe(now - began)
        return began

    def _waiting_since(self, now: float) -> float:
        """Measures the processing of a round.

        Returns the earliest arrival time of its requests, including requests of earlier turns that still wait.
        """
        began = self._processed(now)
        since = began if self._held < 0 else self._held
        self._held = -1.0
        return since


def exposition(metrics: Iterable[Metric], source: Any) -> Generator[None, None, list[bytes]]:
    """Makes the text of a scrape in slices.

    Args:
        metrics: the metrics to output, in order.
        source: the argument of their `collect` functions.

    Returns:
        The metrics in Prometheus' text format, in pieces.
    """
    pieces: list[bytes] = []
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.doc}")
        lines.append(f"# TYPE {metric.name} {metric.kind.value}")
        samples = metric.collect(source)
        for values, value in samples if metric.many else list(samples):  # the source may change during a pause
            labels = [f'{name}="{_escaped(text)}"' for name, text in zip(metric.labels, values, strict=True)]
            if metric.kind is MetricKind.HISTOGRAM:
                lines += _histogram_lines(metric.name, labels, value)
            else:
                lines.append(f"{metric.name}{_braced(labels)} {_number(value)}")
            if len(lines) >= SLICE_LINES:
                pieces.append(_encoded(lines))
                lines = []
                yield
    pieces.append(_encoded(lines))
    return pieces


def _encoded(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


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
