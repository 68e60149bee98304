"""Renders the report: one self-contained HTML page without scripts and network access, in light and dark colours.

The page is well-formed XML too. Every plot comes with a table of its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, Final

from kcore.printable import clean
from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.spark.timeline.causes import CAUSES, GONE, UNKNOWN
from kcore.spark.timeline.style import STYLE
from kcore.spark.timeline.summary import TOP_GROUPS, TOP_ROWS, Summary
from kcore.spark.timeline.svg import SERIES, Axis, Plots, Span, legend
from kcore.spark.timeline.text import duration, number, shown, utc

OTHERS: Final = "other causes"
DELIVERIES: Final = ("acknowledged", "archived", "redelivered")
COMMITS: Final = ("plain", "in transactions", "aborted")
OUTCOMES: Final = ("committed", "aborted", "timed out", "open", "unknown")
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

Column = tuple[str, Callable[[dict[str, Any]], str], bool]
"""A column of a report's table: (heading, function from a row to its text, True if the column has numbers)."""


def render(summary: Summary) -> str:
    """Renders the page of a summary (`kcore.spark.timeline.summary.summarise`)."""
    plots = Plots()
    body = [
        _head(summary),
        _rebalances(summary, plots),
        _storms(summary),
        _commits(summary, plots),
        _deliveries(summary, plots),
        _transactions(summary, plots),
        _about(summary),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>Coordinator timeline</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


# ---- pieces of a page


def _text(value: object) -> str:
    return escape(clean(value))


def _table(caption: str, columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> str:
    head = "".join(
        f'<th scope="col" class="number">{_text(name)}</th>' if is_number else f'<th scope="col">{_text(name)}</th>'
        for name, _, is_number in columns
    )
    lines = []
    for row in rows:
        cells = (
            f'<td class="number">{_text(of(row))}</td>' if is_number else f"<td>{_text(of(row))}</td>"
            for _, of, is_number in columns
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table><caption>{_text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _figure(plot: str, caption: str, series: Sequence[str], table: str) -> str:
    colours = legend(series) if series else ""
    return (
        f"<figure><figcaption>{_text(caption)}</figcaption>{colours}{plot}"
        f"<details><summary>The same as a table</summary>{table}</details></figure>"
    )


def _section(title: str, parts: Iterable[str], note: str = "") -> str:
    inner = "".join(parts)
    words = f'<p class="note">{_text(note)}</p>' if note else ""
    return f"<section><h2>{_text(title)}</h2>{words}{inner or '<p>There are none.</p>'}</section>"


def _of(name: str, form: Callable[[Any], str] = shown) -> Callable[[dict[str, Any]], str]:
    return lambda row: form(row[name])


def _partial(row: dict[str, Any]) -> str:
    return "" if row["whole"] else "compacted: parts may be missing"


def _names(names: str, total: str) -> Callable[[dict[str, Any]], str]:
    def text(row: dict[str, Any]) -> str:
        listed = ", ".join(map(shown, row[names] or ()))
        more = (row[total] or 0) - len(row[names] or ())
        return f"{listed} and {more} more" if more > 0 else listed

    return text


def _axis(summary: Summary, topic: str) -> Axis:
    """Returns the time axis for `topic`. It is grey until the logs of all partitions of the topic are complete."""
    moments = [
        log["last_ms"] if log["whole_from_ms"] is None else log["whole_from_ms"]
        for log in summary["logs"]
        if log["topic"] == topic and log["whole_from_offset"] != log["first_offset"] and log["records"]
    ]
    moments += [
        log["whole_from_ms"]
        for log in summary["logs"]
        if log["topic"] == topic and log["whole_from_offset"] == log["first_offset"] and log["first_offset"] > 0
    ]
    return Axis(summary["from_ms"], summary["to_ms"], summary["step_ms"], max(moments, default=None))


def _count_of(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: number(row.get(name, 0))


def _steps_table(caption: str, series: Sequence[str], steps: dict[int, dict[str, int]]) -> str:
    columns: list[Column] = [("from (UTC)", _of("at_ms", utc), False)]
    columns += [(name, _count_of(name), True) for name in series]
    return _table(caption, columns, [{"at_ms": at_ms, **values} for at_ms, values in sorted(steps.items())])


# ---- sections


def _head(summary: Summary) -> str:
    totals = summary["totals"]
    tiles = (
        ("groups", totals["groups"]),
        ("rebalances", totals["rebalances"]),
        ("superseded by the next", totals["superseded"]),
        ("storms", totals["storms"]),
        ("partitions moved", totals["moved"]),
        ("offsets committed", totals["commits"]),
        ("gaps in commits", totals["gaps"]),
        ("transactions", totals["transactions"]),
        ("aborted", totals["aborted"]),
        ("timed out", totals["timed_out"]),
        ("still open", totals["open"]),
    )
    shown_tiles = "".join(f"<div><dt>{_text(name)}</dt><dd>{number(value)}</dd></div>" for name, value in tiles)
    span = duration(summary["to_ms"] - summary["from_ms"])
    when = f"{utc(summary['from_ms'])} to {utc(summary['to_ms'])} UTC ({span})"
    only = ", ".join(map(shown, summary["groups_asked"]))
    filtered = f"<p>Only groups: {_text(only)}. Transactions are not filtered.</p>" if only else ""
    return (
        f"<header><h1>Coordinator timeline</h1><p>{_text(when)}, from <code>{_text(summary['source'])}</code></p>"
        f"{filtered}<dl class='tiles'>{shown_tiles}</dl>{_wholeness(summary)}</header>"
    )


def _wholeness(summary: Summary) -> str:
    """Renders a sentence on the completeness of the history."""
    logs = [log for log in summary["logs"] if log["records"]]
    partial = [log for log in logs if log["first_offset"] > 0 or log["whole_from_offset"] != log["first_offset"]]
    if not partial:
        words = "The logs are complete from their beginnings: nothing was removed by compaction or deleted."
        return f'<p class="whole">{words}</p>'
    times_ms = [log["whole_from_ms"] for log in partial if log["whole_from_ms"] is not None]
    since = f" From {utc(max(times_ms))} UTC on, their history is complete." if len(times_ms) == len(partial) else ""
    words = (
        f"{len(partial)} of {len(logs)} partitions were compacted or lost their front. Before the time from which a "
        f"partition is complete, events are missing and causes may be wrong.{since} Plots are grey there."
    )
    columns: list[Column] = [
        ("topic", _of("topic"), False),
        ("partition", _of("coordinator_partition", number), True),
        ("first offset", _of("first_offset", number), True),
        ("next offset", _of("next_offset", number), True),
        ("records left", _of("records", number), True),
        ("whole from offset", _of("whole_from_offset", number), True),
        ("whole from (UTC)", _of("whole_from_ms", utc), False),
    ]
    table = _table("Partitions that are not whole", columns, partial)
    return f'<p class="warn">{_text(words)}</p><details><summary>Which partitions</summary>{table}</details>'


def _rebalances(summary: Summary, plots: Plots) -> str:
    axis = _axis(summary, CONSUMER_OFFSETS)
    parts = []
    if summary["causes"]:
        parts.append(_by_cause(summary, plots, axis))
        parts.append(_by_group(summary, plots, axis))
        parts.append(_longest(summary))
    if summary["movers"]:
        columns: list[Column] = [
            ("group", _of("group_id"), False),
            ("member", _of("member"), False),
            ("rebalances", _of("rebalances", number), True),
            ("partitions gained", _of("gained", number), True),
            ("partitions lost", _of("lost", number), True),
        ]
        parts.append(_table(f"Members that gained and lost most (at most {TOP_ROWS})", columns, summary["movers"]))
    note = (
        "Consumer, share and streams groups log every step: a duration lasts from the first record of a change until "
        "all members are stable. Classic groups log only the result: a duration is that of the sync phase, from the "
        "end of the join phase to the assignment. No log contains the duration of the join phase."
    )
    return _section("Rebalances", parts, note)


def _by_cause(summary: Summary, plots: Plots, axis: Axis) -> str:
    counts: dict[str, int] = {}
    for row in summary["cause_totals"]:
        counts[row["cause"]] = counts.get(row["cause"], 0) + row["count"]
    frequent = sorted(counts, key=lambda cause: (-counts[cause], cause))
    series = [cause for cause in CAUSES if cause in frequent[: SERIES - 1]]
    steps: dict[int, dict[str, int]] = {}
    for row in summary["causes"]:
        of_step = steps.setdefault(row["at_ms"], {})
        name = row["cause"] if row["cause"] in series else OTHERS
        of_step[name] = of_step.get(name, 0) + row["count"]
    if len(frequent) > len(series):
        series.append(OTHERS)
    plot = plots.bars("Rebalances by cause", series, steps, axis)
    table = _steps_table(f"Rebalances that began in each {duration(axis.step_ms)}", series, steps)
    kinds: list[Column] = [
        ("cause", _of("cause"), False),
        ("meaning", lambda row: CAUSES.get(row["cause"], ""), False),
        ("group type", _of("group_type"), False),
        ("rebalances", _of("count", number), True),
    ]
    caption = f"Rebalances by their main cause, in steps of {duration(axis.step_ms)}"
    meanings = _table("Meaning of the causes", kinds, summary["cause_totals"])
    return (
        _figure(plot, caption, series, table) + f"<details><summary>Causes by group type</summary>{meanings}</details>"
    )


def _by_group(summary: Summary, plots: Plots, axis: Axis) -> str:
    rows = summary["restless"]
    names = [row["group_id"] for row in rows]
    steps: dict[str, dict[int, int]] = {}
    for row in summary["restless_steps"]:
        steps.setdefault(row["group_id"], {})[row["at_ms"]] = row["count"]
    columns: list[Column] = [
        ("group", _of("group_id"), False),
        ("type", _of("group_type"), False),
        ("rebalances", _of("rebalances", number), True),
        ("superseded", _of("superseded", number), True),
        ("storms", _of("storms", number), True),
        ("longest", _of("longest_rebalance_ms", duration), True),
        ("partitions moved", _of("moved", number), True),
    ]
    table = _table("Groups that rebalanced most", columns, rows)
    caption = f"Groups that rebalanced most (at most {TOP_GROUPS}): the stronger the colour, the more rebalances"
    return _figure(plots.heat("Rebalances by group", names, steps, axis), caption, (), table)


def _longest(summary: Summary) -> str:
    columns: list[Column] = [
        ("group", _of("group_id"), False),
        ("type", _of("group_type"), False),
        ("epoch", _of("epoch", number), True),
        ("began (UTC)", _of("start_ms", utc), False),
        ("duration", _of("duration_ms", duration), True),
        ("of", _of("covers"), False),
        ("outcome", _of("outcome"), False),
        ("causes", _of("causes", clean), False),
        ("members", _of("members", number), True),
        ("joined", _names("joined", "joined_count"), False),
        ("left", _names("gone", "gone_count"), False),
        ("moved", _of("moved", number), True),
        ("evidence", _of("detail", clean), False),
        ("", _partial, False),
    ]
    return _table(f"Longest rebalances (at most {TOP_ROWS})", columns, summary["longest_rebalances"])


def _storms(summary: Summary) -> str:
    bounds = summary["bounds"]
    note = (
        f"A storm: {bounds['storm_count']} or more rebalances of one group begin within "
        f"{duration(bounds['storm_window_ms'])}. Overlapping storms are merged."
    )
    columns: list[Column] = [
        ("group", _of("group_id"), False),
        ("from (UTC)", _of("from_ms", utc), False),
        ("lasted", lambda row: duration(row["to_ms"] - row["from_ms"]), True),
        ("rebalances", _of("rebalances", number), True),
        ("superseded", _of("superseded", number), True),
        ("joined", _of("members_joined", number), True),
        ("left", _of("members_left", number), True),
        ("moved", _of("moved", number), True),
        ("causes", lambda row: ", ".join(f"{name} ×{count}" for name, count in sorted(row["causes"].items())), False),
        ("", _partial, False),
    ]
    storms = summary["storms"]
    caption = f"Storms (at most {TOP_ROWS} of {number(summary['totals']['storms'])})"
    return _section("Rebalance storms", [_table(caption, columns, storms)] if storms else [], note)


def _commits(summary: Summary, plots: Plots) -> str:
    axis = _axis(summary, CONSUMER_OFFSETS)
    steps: dict[str, dict[int, dict[str, int]]] = {}
    for row in summary["commit_steps"]:
        plain = row["commits"] - row["transactional"]
        values = dict(zip(COMMITS, (plain, row["transactional"], row["aborted"]), strict=True))
        steps.setdefault(row["group_id"], {})[row["at_ms"]] = values
    parts = [legend(COMMITS)] if summary["committers"] else []
    for row in summary["committers"]:
        group_id = row["group_id"]
        of_group = steps.get(group_id, {})
        title = f"Commits of {shown(group_id)}"
        plot = plots.bars(title, COMMITS, of_group, axis, height=96, unit=" commits")
        caption = f"{shown(group_id)}: {number(row['commits'])} offsets committed, {number(row['aborted'])} aborted"
        gap = row["longest_gap_ms"]
        caption += "" if gap is None else f", longest gap {duration(gap)}"
        parts.append(_figure(plot, caption, (), _steps_table(title, COMMITS, of_group)))
    if summary["committed_topics"]:
        parts.append(_table(f"Groups and topics (at most {TOP_ROWS})", _TOPIC_COLUMNS, summary["committed_topics"]))
    if summary["gaps"]:
        caption = f"Longest gaps between commits (at most {TOP_ROWS} of {number(summary['totals']['gaps'])})"
        parts.append(_table(caption, _GAP_COLUMNS, summary["gaps"]))
    note = (
        f"The {TOP_GROUPS} groups that commit most, in steps of {duration(axis.step_ms)}; each plot has a scale of its "
        f"own. A gap is {duration(summary['bounds']['gap_ms'])} or more without a commit to a topic. A coordinator's "
        "log does not contain the lag of a group."
    )
    return _section("Commits", parts, note)


_TOPIC_COLUMNS: Final[list[Column]] = [
    ("group", _of("group_id"), False),
    ("topic", _of("topic"), False),
    ("commits", _of("commits", number), True),
    ("most in a second", _of("peak_per_s", number), True),
    ("in transactions", _of("transactional", number), True),
    ("aborted", _of("aborted", number), True),
    ("", _partial, False),
]
_GAP_COLUMNS: Final[list[Column]] = [
    ("group", _of("group_id"), False),
    ("topic", _of("topic"), False),
    ("from (UTC)", _of("from_ms", utc), False),
    ("to (UTC)", lambda row: "the end of the log" if row["open"] else utc(row["to_ms"]), False),
    ("gap", _of("gap_ms", duration), True),
    ("rebalances in it", _of("rebalances", number), True),
    ("", _partial, False),
]


def _deliveries(summary: Summary, plots: Plots) -> str:
    axis = _axis(summary, SHARE_GROUP_STATE)
    steps: dict[str, dict[int, dict[str, int]]] = {}
    for row in summary["share_steps"]:
        steps.setdefault(row["group_id"], {})[row["at_ms"]] = {name: row[name] for name in DELIVERIES}
    parts = [legend(DELIVERIES)] if summary["sharers"] else []
    for row in summary["sharers"]:
        group_id = row["group_id"]
        of_group = steps.get(group_id, {})
        title = f"Deliveries of {shown(group_id)}"
        plot = plots.bars(title, DELIVERIES, of_group, axis, height=96, unit=" records")
        caption = f"{shown(group_id)}: " + ", ".join(f"{number(row[name])} {name}" for name in DELIVERIES)
        caption += "" if row["lag"] is None else f", lag {number(row['lag'])} at the end"
        parts.append(_figure(plot, caption, (), _steps_table(title, DELIVERIES, of_group)))
    if summary["share_partitions"]:
        caption = f"Share partitions with most redelivered and archived records (at most {TOP_ROWS})"
        parts.append(_table(caption, _SHARE_COLUMNS, summary["share_partitions"]))
    note = (
        "Share groups (KIP-932): the share coordinator records a delivery when it ends. A record is archived if a "
        "consumer rejected it or if it was released too often. The lag is known if the log of the topic is there."
    )
    return _section("Deliveries of share groups", parts, note)


_SHARE_COLUMNS: Final[list[Column]] = [
    ("group", _of("group_id"), False),
    ("topic", _of("topic"), False),
    ("partition", _of("partition", number), True),
    ("acknowledged", _of("acknowledged", number), True),
    ("archived", _of("archived", number), True),
    ("redelivered", _of("redelivered", number), True),
    ("start offset", _of("start_offset", number), True),
    ("highest lag", _of("most_lag", number), True),
    ("last lag", _of("lag", number), True),
    ("", _partial, False),
]


def _transactions(summary: Summary, plots: Plots) -> str:
    axis = _axis(summary, TRANSACTION_STATE)
    steps: dict[int, dict[str, int]] = {}
    for row in summary["transaction_steps"]:
        steps.setdefault(row["at_ms"], {})[row["outcome"]] = row["count"]
    parts = []
    if steps:
        plot = plots.bars("Transactions by outcome", OUTCOMES, steps, axis)
        table = _steps_table(f"Transactions that began in each {duration(axis.step_ms)}", OUTCOMES, steps)
        caption = f"Transactions by outcome, in steps of {duration(axis.step_ms)}"
        parts.append(_figure(plot, caption, OUTCOMES, table))
        parts.append(_table("Durations", _OUTCOME_COLUMNS, summary["transaction_totals"]))
        longest = summary["longest_transactions"]
        plot = plots.spans("Longest transactions", [_span(row) for row in longest])
        caption = f"Longest transactions (at most {TOP_ROWS}); the mark is the transaction's timeout"
        table = _table("Longest transactions", _TRANSACTION_COLUMNS, longest)
        parts.append(_figure(plot, caption, ("until the decision", "until the markers were written"), table))
    note = (
        "Durations last from the first partition to the last marker. A fence and an abort by a producer of "
        "transaction.version 2 write the same record unless the transaction's timeout was over."
    )
    return _section("Transactions", parts, note)


def _span(row: dict[str, Any]) -> Span:
    name, total = shown(row["transactional_id"]), row["duration_ms"]
    decided = total if row["prepare_ms"] is None else min(total, max(0, row["prepare_ms"] - row["start_ms"]))
    end = f"{row['outcome']}{', ' + row['cause'] if row['cause'] else ''}"
    parts = [
        ("s0", decided, f"{name}: {duration(decided)} until the decision; {end}"),
        ("s1", total - decided, f"{name}: {duration(total - decided)} until the markers were written"),
    ]
    return Span(row["transactional_id"], parts, row["timeout_ms"])


_OUTCOME_COLUMNS: Final[list[Column]] = [
    ("outcome", _of("outcome"), False),
    ("cause", lambda row: row["cause"] or "", False),
    ("transactions", _of("count", number), True),
    ("median", _of("median_ms", duration), True),
    ("99 %", _of("p99_ms", duration), True),
    ("longest", _of("longest_ms", duration), True),
]
_TRANSACTION_COLUMNS: Final[list[Column]] = [
    ("transactional id", _of("transactional_id"), False),
    ("producer", lambda row: f"{row['producer_id']}/{row['producer_epoch']}", False),
    ("began (UTC)", _of("start_ms", utc), False),
    ("duration", _of("duration_ms", duration), True),
    ("timeout", _of("timeout_ms", duration), True),
    ("state", _of("state"), False),
    ("outcome", _of("outcome"), False),
    ("cause", lambda row: row["cause"] or "", False),
    ("partitions", _of("partitions", number), True),
    ("topics", _names("topics", "topic_count"), False),
    ("", _partial, False),
]


def _about(summary: Summary) -> str:
    bounds = summary["bounds"]
    words = (
        f"Windows of {duration(bounds['window_ms'])}, times in UTC, by the coordinators' clocks. Lists and plots show "
        "the first rows; the Parquet tables beside this file hold all of them.",
        f"“{GONE}” is the cause of most departures: leaving and timing out write the same records. "
        f"“{UNKNOWN}” is the cause if nothing differs in the log.",
    )
    faults = summary["totals"]["faults"]
    more = [f"{number(faults)} records could not be decoded and were skipped."] if faults else []
    return "<footer>" + "".join(f"<p>{_text(line)}</p>" for line in (*words, *more)) + "</footer>"
