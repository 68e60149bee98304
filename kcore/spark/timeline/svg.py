"""Renders plots as inline SVG without scripts and outside references. Colours come from the page's style."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import count
from typing import Final, NamedTuple

from kcore.printable import clean
from kcore.spark.timeline.text import DAY_MS, duration, number, short, shown, utc

WIDTH: Final = 960
LEFT: Final = 56
RIGHT: Final = 12
FOOT: Final = 24
LABEL_WIDTH: Final = 220
ROW: Final = 22
MILLIS_BELOW_MS: Final = 10_000
"""The length of a time axis, in ms, below which its labels show milliseconds."""
SERIES: Final = 9
"""Number of series with their own colours: the page's style has `.s0` to `.s8`."""


class Axis(NamedTuple):
    """The time axis of a plot.

    Attributes:
        from_ms: the start of the axis, in ms since the epoch.
        to_ms: the end of the axis, in ms since the epoch.
        step_ms: the width of a bar.
        whole_ms: the time from which the history is complete; earlier times are grey. None: no grey area.
    """

    from_ms: int
    to_ms: int
    step_ms: int
    whole_ms: int | None = None

    @property
    def first_ms(self) -> int:
        """The start of the first bar, in ms since the epoch."""
        return self.from_ms // self.step_ms * self.step_ms

    @property
    def span_ms(self) -> int:
        """The total time of the bars in ms."""
        return (self.to_ms // self.step_ms + 1) * self.step_ms - self.first_ms

    def x(self, at_ms: float, left: float, right: float) -> float:
        """Returns the horizontal position of a time on an axis from `left` to `right`."""
        share = (at_ms - self.first_ms) / self.span_ms
        return left + min(1.0, max(0.0, share)) * (right - left)


class Plots:
    """The renderer of plots. It gives each plot a unique id on the page."""

    def __init__(self) -> None:
        self._ids = count(1)

    def bars(
        self,
        title: str,
        series: Sequence[str],
        steps: Mapping[int, Mapping[str, int]],
        axis: Axis,
        *,
        height: int = 200,
        top: int | None = None,
        unit: str = "",
    ) -> str:
        """Renders stacked bars over time.

        Args:
            title: the text that screen readers and tooltips show for the plot.
            series: names in stacking order; the n-th has the n-th colour.
            steps: start of a step in ms -> series -> count.
            axis: the time axis.
            height: the height in pixels if the plot is shown `WIDTH` pixels wide.
            top: the upper end of the scale; None: the highest bar.
            unit: suffix of the numbers.
        """
        highest = max((sum(values.values()) for values in steps.values()), default=0) if top is None else top
        scale = _nice_top(highest)
        floor = height - FOOT
        parts = [_hatch(axis, LEFT, WIDTH - RIGHT, 8, floor)]
        for tick in _ticks(scale):
            y = floor - (floor - 8) * tick / scale
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
        for at_ms, values in sorted(steps.items()):
            x = axis.x(at_ms, LEFT, WIDTH - RIGHT)
            width = max(1.0, axis.x(at_ms + axis.step_ms, LEFT, WIDTH - RIGHT) - x - 0.8)
            y = float(floor)
            for index, name in enumerate(series):
                value = values.get(name, 0)
                if value:
                    tall = (floor - 8) * value / scale
                    y -= tall
                    tip = f"{utc(at_ms)}: {number(value)} {name}{unit}"
                    parts.append(_rect(f"s{index % SERIES}", x, y, width, tall, tip))
        parts.append(_time_axis(axis, LEFT, WIDTH - RIGHT, floor))
        totals = {name: sum(values.get(name, 0) for values in steps.values()) for name in series}
        words = ", ".join(f"{number(value)} {name}" for name, value in totals.items()) or "nothing"
        return self._svg(
            height, title, f"{words}; at most {number(highest)} in one step of {duration(axis.step_ms)}", parts
        )

    def heat(self, title: str, rows: Sequence[str], steps: Mapping[str, Mapping[int, int]], axis: Axis) -> str:
        """Renders a heat map: a row per name, a cell per step, darker for higher counts."""
        height = ROW * len(rows) + FOOT + 4
        highest = max((value for row in steps.values() for value in row.values()), default=1)
        parts = [_hatch(axis, LABEL_WIDTH, WIDTH - RIGHT, 2, ROW * len(rows))]
        for index, name in enumerate(rows):
            y = index * ROW + 2
            parts.append(_label(name, LABEL_WIDTH - 8, y + ROW / 2 + 3))
            right = WIDTH - RIGHT
            parts.append(f'<line class="grid" x1="{LABEL_WIDTH}" x2="{right}" y1="{y + ROW - 1}" y2="{y + ROW - 1}"/>')
            for at_ms, value in sorted(steps.get(name, {}).items()):
                x = axis.x(at_ms, LABEL_WIDTH, right)
                width = max(1.5, axis.x(at_ms + axis.step_ms, LABEL_WIDTH, right) - x - 0.6)
                tip = f"{shown(name)}, {utc(at_ms)}: {number(value)}"
                strength = 0.25 + 0.75 * value / highest
                parts.append(_rect("heat", x, y + 1, width, ROW - 3, tip, f' fill-opacity="{strength:.2f}"'))
        parts.append(_time_axis(axis, LABEL_WIDTH, WIDTH - RIGHT, ROW * len(rows) + 3))
        most = f"at most {number(highest)} in one step of {duration(axis.step_ms)}"
        return self._svg(height, title, f"{len(rows)} rows; {most}", parts)

    def spans(self, title: str, rows: Sequence[Span]) -> str:
        """Renders each row as a horizontal bar of several parts, with a mark at the row's limit."""
        height = ROW * len(rows) + FOOT + 4
        longest = max((sum(length for _, length, _ in row.parts) for row in rows), default=0)
        scale = max(1, longest)
        parts = []
        width = WIDTH - RIGHT - LABEL_WIDTH
        for index, row in enumerate(rows):
            y, x = index * ROW + 2, float(LABEL_WIDTH)
            parts.append(_label(row.name, LABEL_WIDTH - 8, y + ROW / 2 + 3))
            for css, length, tip in row.parts:
                wide = max(1.0, width * length / scale) if length else 0.0
                if wide:
                    parts.append(_rect(css, x, y + 3, wide, ROW - 7, tip))
                x += wide
            if row.limit is not None and row.limit <= scale:
                at = LABEL_WIDTH + width * row.limit / scale
                tip = f"{shown(row.name)}: limit {duration(row.limit)}"
                line = f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{y + ROW - 2}">'
                parts.append(f"{line}<title>{escape(clean(tip))}</title></line>")
        floor = ROW * len(rows) + 3
        parts.append(_foot(LABEL_WIDTH, WIDTH - RIGHT, floor, lambda share: duration(int(scale * share))))
        return self._svg(height, title, f"{len(rows)} bars; the longest lasts {duration(longest)}", parts)

    def _svg(self, height: int, title: str, description: str, parts: Iterable[str]) -> str:
        number_ = next(self._ids)
        return (
            f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t{number_} d{number_}">'
            f'<title id="t{number_}">{escape(clean(title))}</title>'
            f'<desc id="d{number_}">{escape(clean(description))}</desc>{"".join(parts)}</svg>'
        )


class Span(NamedTuple):
    """A bar of `Plots.spans`: its name, (class, length in ms, tip) of each part, and a limit in ms or None."""

    name: str
    parts: Sequence[tuple[str, int, str]]
    limit: int | None = None


def legend(series: Sequence[str]) -> str:
    """Renders the legend of the series' colours."""
    items = "".join(
        f'<li><svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">'
        f'<rect class="s{index % SERIES}" width="12" height="12" rx="2"/></svg> {escape(shown(name))}</li>'
        for index, name in enumerate(series)
    )
    return f'<ul class="legend">{items}</ul>'


def _rect(css: str, x: float, y: float, width: float, height: float, tip: str, more: str = "") -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{css}" {box}{more}><title>{escape(clean(tip))}</title></rect>'


def _label(name: str, x: float, y: float) -> str:
    text, whole = escape(short(name)), escape(shown(name))
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="end">{text}<title>{whole}</title></text>'


def _hatch(axis: Axis, left: float, right: float, top: float, floor: float) -> str:
    if axis.whole_ms is None or axis.whole_ms <= axis.from_ms:
        return ""
    x = axis.x(axis.from_ms, left, right)
    width = axis.x(axis.whole_ms, left, right) - x
    return _rect(
        "partial", x, top, width, floor - top, f"compacted: the history is complete from {utc(axis.whole_ms)} on"
    )


def _time_axis(axis: Axis, left: float, right: float, floor: float) -> str:
    end_ms = axis.first_ms + axis.span_ms
    days = axis.first_ms // DAY_MS != (end_ms - 1) // DAY_MS

    def text_at(share: float) -> str:
        return utc(axis.first_ms + int(axis.span_ms * share), days=days, millis=axis.span_ms < MILLIS_BELOW_MS)

    return _foot(left, right, floor, text_at)


def _foot(left: float, right: float, floor: float, text_at: Callable[[float], str]) -> str:
    """Renders the axis below a plot.

    `text_at` returns the label at a position on the axis: 0 is the left end, and 1 is the right end.
    """
    parts = [f'<line class="axis" x1="{left:.1f}" x2="{right:.1f}" y1="{floor:.1f}" y2="{floor:.1f}"/>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if not share else "end" if share == 1 else "middle"
        x = left + (right - left) * share
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{floor + 16:.1f}" text-anchor="{anchor}">{text_at(share)}</text>'
        )
    return "".join(parts)


def _nice_top(highest: float) -> int:
    """Returns the first of 1, 2, 4, 6, 8, 10, 20, ... that is not below `highest`."""
    base = 1
    while True:
        for factor in (1, 2, 4, 6, 8):
            if base * factor >= highest:
                return base * factor
        base *= 10


def _ticks(scale: int) -> list[int]:
    if scale == 1:
        return [0, 1]
    return [0, scale // 2, scale]
