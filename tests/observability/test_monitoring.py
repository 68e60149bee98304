"""The dashboard and the alert rules in docs/monitoring name metrics and labels that a running server exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcore.metrics import MetricKind
from kcore.server.observe import METRICS
from tests.kit import batch, heartbeat, make_topic, produce, stable_alone
from tests.observability.watched import watched

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
ALERTS = FOLDER / "alerts.yml"
DASHBOARD = FOLDER / "grafana-dashboard.json"

METRIC = re.compile(r"\b(?:kcore|process)_\w+")
SELECTOR = re.compile(r"((?:kcore|process)_\w+)\{([^}]*)\}")
GROUPING = re.compile(r"by \(([^)]*)\)")
LEGEND = re.compile(r"\{\{(\w+)\}\}")
LABELS = {metric.name: set(metric.labels) for metric in METRICS}
SUFFIX = re.compile(r"_(?:bucket|sum|count)$")
OF_PROMETHEUS = {"instance", "le", "job"}


def alert_expressions() -> list[str]:
    """Returns the expressions of all alert rules. In the YAML file, an expression has one line or is folded over
    several lines.
    """
    found = re.findall(r"^ +expr: (>-\n(?: {10}.*\n)+|.*\n)", ALERTS.read_text(), re.MULTILINE)
    assert len(found) == ALERTS.read_text().count("- alert:")
    return [" ".join(text.removeprefix(">-").split()) for text in found]


def targets() -> Iterator[dict[str, Any]]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from panel.get("targets", ())


def base_name(name: str) -> str:
    """Returns the name of the metric to which a series belongs."""
    shorter = SUFFIX.sub("", name)
    histogram = any(m.name == shorter and m.kind is MetricKind.HISTOGRAM for m in METRICS)
    return shorter if histogram else name


def labels_used(expression: str) -> set[str]:
    found = {name.strip() for names in GROUPING.findall(expression) for name in names.split(",")}
    for _, matchers in SELECTOR.findall(expression):
        found |= set(re.findall(r"(\w+)\s*[=!]~?\"", matchers))
    return found


EXPRESSIONS = [*alert_expressions(), *(target["expr"] for target in targets())]


@pytest.fixture(scope="module")
def scrape() -> str:
    with watched() as node:
        node.get("/metrics")
        with node.live.connect() as client:
            make_topic(client, "t")
            stable_alone(client, "g")
            client.send(produce("t", batch([b"x"])), 9)
            client.send(heartbeat("g", "unknown", 1))
        node.live.call(lambda: node.live.server.authentications.ended("PLAIN", again=False, success=True))
        return node.get("/metrics")[1]


def test_every_metric_of_the_files_is_exported(scrape: str) -> None:
    exported = set(re.findall(r"^(\w+)", scrape, re.MULTILINE))
    text = "\n".join([ALERTS.read_text(), *EXPRESSIONS])
    used = set(METRIC.findall(text))
    assert len(used) > 40
    assert used - exported == set()


def test_every_label_of_the_files_belongs_to_its_metrics() -> None:
    """Expressions and legends use only labels that their metrics have. With another label, a legend would show an empty
    text.
    """
    for expression in EXPRESSIONS:
        names = {base_name(name) for name in METRIC.findall(expression)}
        for label in labels_used(expression) - OF_PROMETHEUS:
            assert any(label in LABELS[name] for name in names), (expression, label)
    for target in targets():
        kept = labels_used(target["expr"]) | (
            set().union(*(LABELS[base_name(name)] for name in METRIC.findall(target["expr"])))
            if "sum" not in target["expr"]
            else set()
        )
        assert set(LEGEND.findall(target["legendFormat"])) <= kept, target


def test_the_rules_are_valid_for_prometheus() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    result = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert f"{len(alert_expressions())} rules found" in result.stdout


def test_the_expressions_are_valid_for_prometheus(tmp_path: Path) -> None:
    """Variables of the dashboard are replaced as Grafana replaces them."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    lines = ["groups:", "- name: dashboard", "  rules:"]
    for number, target in enumerate(targets()):
        expression = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
        lines += [f"  - record: panel:{number}", f"    expr: {json.dumps(expression)}"]
    rules = tmp_path / "panels.yml"
    rules.write_text("\n".join(lines) + "\n")
    result = subprocess.run(["promtool", "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_scrape_is_valid_for_prometheus(scrape: str) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    result = subprocess.run(["promtool", "check", "metrics"], input=scrape, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr + result.stdout
