"""The report is well-formed and self-contained, and escapes the names that clients choose."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from kcore.printable import clean
from kcore.spark.timeline.report import render
from kcore.spark.timeline.summary import TOP_GROUPS, TOP_ROWS
from kcore.spark.timeline.svg import Axis, Plots
from kcore.spark.timeline.text import duration, number, short, shown, utc

MARKUP = "</title></svg><script>alert('x')</script><img src=\"http://evil.example/?a&b\" onerror=x>"
HOSTILE = MARKUP + "\x00\x1b[31m\u202egnp\ud800"
AT_MS = 1_700_000_000_000
BOUNDS = {
    "window_ms": 1_000,
    "gap_ms": 60_000,
    "storm_count": 5,
    "storm_window_ms": 300_000,
    "from_ms": None,
    "to_ms": None,
}


def summary(name: str = "g", *, whole: bool = True) -> dict[str, Any]:
    """Returns a summary in which `name` replaces every text that a client can choose."""
    log = {
        "coordinator_partition": 0,
        "topic": "__consumer_offsets",
        "first_offset": 0 if whole else 5,
        "next_offset": 9,
        "first_ms": AT_MS,
        "last_ms": AT_MS + 5_000,
        "whole_from_offset": 0 if whole else 7,
        "whole_from_ms": AT_MS if whole else AT_MS + 2_000,
        "records": 9,
        "faults": 1,
    }
    totals = dict.fromkeys(
        ("groups", "rebalances", "superseded", "storms", "moved", "commits", "gaps", "transactions", "aborted",
         "timed_out", "open", "faults", "rebalances_not_whole", "commits_aborted"), 1_234,
    )  # fmt: skip
    return (
        {
            "source": name,
            "groups_asked": [name],
            "bounds": BOUNDS,
            "from_ms": AT_MS,
            "to_ms": AT_MS + 5_000,
            "step_ms": 1_000,
            "logs": [log],
            "totals": totals,
        }
        | rebalances(name, whole)
        | commits(name, whole)
        | deliveries(name, whole)
        | transactions(name, whole)
    )


STEP = {"at_ms": AT_MS, "count": 3}


def rebalances(name: str, whole: bool) -> dict[str, Any]:
    """Returns the part of a summary about rebalances."""
    return {
        "causes": [{**STEP, "cause": "member joined"}],
        "cause_totals": [{"cause": "member joined", "group_type": "consumer", "count": 3}],
        "restless": [
            {
                "group_id": name,
                "group_type": "consumer",
                "rebalances": 3,
                "superseded": 1,
                "storms": 1,
                "longest_rebalance_ms": 77,
                "moved": 4,
            }
        ],
        "restless_steps": [{**STEP, "group_id": name}],
        "longest_rebalances": [
            {
                "group_id": name,
                "group_type": "consumer",
                "epoch": 2,
                "start_ms": AT_MS,
                "duration_ms": 77,
                "covers": "whole",
                "outcome": "completed",
                "cause": "member joined",
                "causes": "member joined",
                "detail": f"{name} was there",
                "members": 2,
                "joined": [name],
                "joined_count": 9,
                "gone": None,
                "gone_count": 0,
                "moved": None,
                "gained": 1,
                "lost": 1,
                "whole": whole,
            }
        ],
        "movers": [{"group_id": name, "member": name, "rebalances": 1, "gained": 2, "lost": 3}],
        "storms": [
            {
                "group_id": name,
                "from_ms": AT_MS,
                "to_ms": AT_MS + 9,
                "rebalances": 5,
                "superseded": 1,
                "members_joined": 5,
                "members_left": 0,
                "moved": 7,
                "causes": {"member joined": 5},
                "whole": whole,
            }
        ],
    }


def commits(name: str, whole: bool) -> dict[str, Any]:
    """Returns the keys of a summary that are about commits."""
    return {
        "committers": [{"group_id": name, "commits": 5, "aborted": 1, "longest_gap_ms": None}],
        "commit_steps": [{"group_id": name, "at_ms": AT_MS, "commits": 5, "transactional": 2, "aborted": 1}],
        "committed_topics": [
            {
                "group_id": name,
                "topic": name,
                "commits": 5,
                "peak_per_s": 2.5,
                "transactional": 2,
                "aborted": 1,
                "whole": whole,
            }
        ],
        "gaps": [
            {
                "group_id": name,
                "topic": name,
                "from_ms": AT_MS,
                "to_ms": AT_MS + 60_000,
                "gap_ms": 60_000,
                "open": True,
                "rebalances": 0,
                "whole": whole,
            }
        ],
    }


def deliveries(name: str, whole: bool) -> dict[str, Any]:
    """Returns the part of a summary about deliveries of share groups."""
    counts = {"acknowledged": 70, "archived": 3, "redelivered": 8}
    return {
        "sharers": [{"group_id": name, **counts, "lag": 17, "whole": whole}],
        "share_steps": [{"group_id": name, "at_ms": AT_MS, **counts}],
        "share_partitions": [
            {
                "group_id": name,
                "topic": name,
                "partition": 4,
                **counts,
                "start_offset": 61,
                "most_lag": 19,
                "lag": None,
                "whole": whole,
            }
        ],
    }


def transactions(name: str, whole: bool) -> dict[str, Any]:
    """Returns the part of a summary about transactions."""
    return {
        "transaction_steps": [{**STEP, "outcome": "timed out"}],
        "transaction_totals": [
            {"outcome": "aborted", "cause": "timeout", "count": 3, "longest_ms": 9, "median_ms": 5, "p99_ms": 9}
        ],
        "longest_transactions": [
            {
                "transactional_id": name,
                "producer_id": 1,
                "producer_epoch": 2,
                "start_ms": AT_MS,
                "prepare_ms": AT_MS + 6,
                "end_ms": AT_MS + 9,
                "duration_ms": 9,
                "timeout_ms": 8,
                "state": "CompleteAbort",
                "outcome": "aborted",
                "cause": "timeout",
                "partitions": 2,
                "topics": [name],
                "topic_count": 2,
                "whole": whole,
            }
        ],
    }


def empty() -> dict[str, Any]:
    """Returns a summary of an empty log."""
    found = summary()
    for name, value in found.items():
        if isinstance(value, list):
            found[name] = []
    return {**found, "from_ms": 0, "to_ms": 0, "totals": dict.fromkeys(found["totals"], 0)}


def parsed(page: str) -> ElementTree.Element:
    """Parses the page as XML. Raises an error if the page is not well-formed."""
    doctype, rest = page.split("\n", 1)
    assert doctype == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


class Tags(HTMLParser):
    """A parser that collects every tag and attribute of the page, as a browser does."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("made", [summary(), summary(whole=False), summary(HOSTILE), summary(""), empty()])
def test_page_is_well_formed_and_self_contained(made: dict[str, Any]) -> None:
    """The page contains no script and no link, and loads no other file. Every plot has a description in words."""
    page = render(made)
    page.encode()
    root = parsed(page)
    seen = Tags(page).found
    assert not {tag for tag, _ in seen} & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"}
    fetching = {"src", "href", "xlink:href", "action", "data", "srcset", "poster", "background"}
    for tag, attributes in seen:
        assert not fetching & attributes.keys(), tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert not re.search(r"url\(|@import", page)
    for svg in root.iter("svg"):
        if svg.get("role") == "img":
            assert svg.findtext("title")
            assert svg.findtext("desc")
            assert [part.get("id") for part in list(svg)[:2]] == (svg.get("aria-labelledby") or "").split()
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))


def test_names_are_escaped() -> None:
    """Markup is shown as text, and invisible characters are shown as codes."""
    page = render(summary(HOSTILE))
    assert "<script" not in page
    assert not set(page) & {"\x00", "\x1b", "\u202e", "\ud800"}
    words = "".join(parsed(page).itertext())
    assert "<script>alert('x')</script>" in words
    assert r"\x00\x1b[31m\u202egnp\ud800" in words
    assert "http" not in render(summary("g")).replace("http-equiv", "")


def test_colours_follow_the_readers_system() -> None:
    page = render(summary())
    assert "color-scheme:light dark" in page
    assert "prefers-color-scheme:dark" in page
    assert not re.search(r'(fill|stroke)="#', page)  # all colours come from the style


def test_page_reports_incomplete_history() -> None:
    assert "complete from their beginnings" in render(summary())
    page = render(summary(whole=False))
    assert "1 of 1 partitions were compacted" in page
    assert "From 2023-11-14 22:13:22 UTC on" in page
    assert 'class="partial"' in page
    assert 'class="partial"' not in render(summary())


def test_every_plot_has_a_table_of_its_numbers() -> None:
    root = parsed(render(summary()))
    for figure in root.iter("figure"):
        assert figure.find("details/div/table") is not None, "".join(figure.itertext())[:80]


def test_lists_count_omitted_entries() -> None:
    words = "".join(parsed(render(summary())).itertext())
    assert "g and 8 more" in words
    assert f"at most {TOP_ROWS} of 1\N{NARROW NO-BREAK SPACE}234" in words
    assert f"at most {TOP_GROUPS}" in words


def test_bars_lie_within_their_plot() -> None:
    """The bars of a plot lie within its area for any number of bars and any values."""
    steps = {AT_MS + 1_000 * step: {"a": step**3, "b": step} for step in range(90)}
    plot = ElementTree.fromstring(Plots().bars("p", ("a", "b"), steps, Axis(AT_MS, AT_MS + 89_999, 1_000)))
    _, _, width, height = map(float, (plot.get("viewBox") or "").split())
    bars = [
        {name: float(bar.get(name) or "nan") for name in ("x", "y", "width", "height")} for bar in plot.iter("rect")
    ]
    assert len(bars) == 178
    for bar in bars:
        assert 0 <= bar["x"] <= bar["x"] + bar["width"] <= width
        assert 0 <= bar["y"] <= bar["y"] + bar["height"] <= height


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (None, "–"), (0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (4_210, "4.21 s"), (60_000, "1 min"),
        (200_000, "3 min 20 s"), (7_500_000, "2 h 5 min"), (273_600_000, "3 d 4 h"),
    ],
)  # fmt: skip
def test_durations_have_suitable_units(ms: int | None, expected: str) -> None:
    assert duration(ms) == expected


def test_times_and_numbers_are_formatted() -> None:
    assert (utc(AT_MS), utc(None), utc(-1), utc(10**18)) == ("2023-11-14 22:13:20", "–", "-1 ms", f"{10**18} ms")
    assert (number(1_234_567).split("\N{NARROW NO-BREAK SPACE}"), number(2.5), number(None)) == (
        ["1", "234", "567"],
        "2.5",
        "–",
    )
    assert (clean("a\tb\u200e"), shown("x" * 300), short("y" * 40)) == (
        "a\\x09b\\u200e",
        "x" * 199 + "…",
        "y" * 29 + "…",
    )
