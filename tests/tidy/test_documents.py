"""Checks of the facts in the documents: files, names, settings, metrics, commands and defaults exist as they are named.

Each test covers README.md, CONTRIBUTING.md, SECURITY.md and the pages of docs/. Generated pages name the same objects,
so the tests cover them, too.
"""

from __future__ import annotations

import argparse
import fnmatch
import inspect
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import kcore
from kcore.broker.configs.group_config import GROUP_SETTINGS
from kcore.broker.configs.topic_schema import TOPIC_SETTINGS
from kcore.cli import VERBS, parser_for
from kcore.config.kafka_settings import kafka_settings
from kcore.config.node import Config
from kcore.node.membership import HEARTBEAT_INTERVAL_S, SESSION_TIMEOUT_S
from kcore.spark.frames.views import PREFIX, VIEWS
from kcore.spark.state.table_schemas import TABLES as STATE_TABLES
from kcore.spark.timeline.tables import TABLES as TIMELINE_TABLES
from tests.tidy.rules import ROOT, text_of, tracked_files

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
OTHER_PROJECTS = "## Test suites of other projects\n"
"""Heading of the section of docs/testing-kafka-code.md that names files of other repositories."""

FOREIGN_FILES = {"a_b.py", "ask.py"}
"""Names of files that only stand for files of a user or of a later change."""
FOREIGN_CLASSES = {"GroupMetadataManager", "String", "Uuid"}
"""Classes of Kafka and of Java's library, which documents name."""

CLIENT_SETTINGS = {
    *("application.id", "application.server", "auto.offset.reset", "client.id", "enable.auto.commit"),
    *("group.id", "group.protocol", "heartbeat.interval.ms", "isolation.level", "linger.ms", "max.poll.interval.ms"),
    "max.poll.records",
    *("metadata.max.age.ms", "num.standby.replicas", "sasl.jaas.config", "sasl.mechanism", "security.protocol"),
    *("sasl.password", "sasl.username", "bootstrap.servers", "session.timeout.ms", "transactional.id"),
}
"""Settings of Kafka's clients that documents name."""
FEATURES = {"group.version", "kraft.version", "metadata.version", "share.version", "streams.version"} | {
    "transaction.version"
}
"""Features of a cluster, whose names look like those of settings."""
OTHER_NAMES = re.compile(r"(?:spark|kcore_ext|tests|tools|threading|sys|asyncio)\b")
"""Beginnings of the names of modules and of settings of Spark, which may look like names of settings."""
PROTOCOL_FIELDS = {"groups.topics.name", "groups.topics.topic_id", "topics.name", "topics.topic"}
OTHER_DOTTED = {"after.changed_members", "kcore.balanced", "kcore.lock", "partition.metadata", "time.time"}
"""Names of files, of an assignor, and of objects in examples."""

OBJECTS = {
    "broker": "Broker",
    "consumer": "Consumer",
    "engine": "SyncEngine",
    "group": "Group TestGroup",
    "history": "History",
    "job": "Job",
    "member": "Member",
    "node": "EmbeddedNode",
    "producer": "Producer",
    "queue": "Queue",
    "topic": "Topic",
    "topics": "Topics",
    "transactions": "Transactions",
    "txn": "Transaction",
}
"""Names of Python objects in the documents -> the name of their class, or of each of their classes."""

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def prose_of(path: Path) -> str:
    """Returns the text of a page without its code blocks, and without the names of files of other projects."""
    return FENCE.sub("", text_of(path)).partition(OTHER_PROJECTS)[0]


def spans() -> Iterator[tuple[str, str]]:
    """Yields the name of a page and the text of each code span in it."""
    for path in PAGES:
        for text in SPAN.findall(prose_of(path)):
            yield path.name, text


def blocks_of(text: str) -> str:
    """Returns the lines of all code blocks of a page, both fenced and indented ones."""
    fenced = "\n".join(match[0] for match in FENCE.finditer(text))
    indented = "\n".join(re.findall(r"^    (?! )(.+)$", FENCE.sub("", text), re.MULTILINE))
    return f"{fenced}\n{indented}".replace("\\\n", " ")


# ---- files, modules and classes


def test_the_files_that_documents_name_exist() -> None:
    files = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    def exists(name: str) -> bool:
        return any(fnmatch.fnmatch(file, name) or fnmatch.fnmatch(file, f"*/{name}") for file in files)

    named = {
        (page, text)
        for page, text in spans()
        if re.fullmatch(r"[\w*/-][\w./*-]*\.(?:py|pyi|pyx|pxd|c|ipynb|toml)", text)
        or re.fullmatch(r"(?:kcore|kcore_ext|tests|tools|bench|examples|docs)/[\w./*-]+", text)
    }
    assert len(named) > 300
    assert not [
        f"{page}: {name}"
        for page, name in sorted(named)
        if not ({"NAME", "X"} & set(re.split(r"[/.]", name)))
        and name not in FOREIGN_FILES
        and not exists(name.rstrip("/"))
        and not exists(f"{name.rstrip('/')}/*")
    ]


def test_the_modules_and_make_targets_that_documents_name_exist() -> None:
    files = {str(path.relative_to(ROOT)) for path in tracked_files(".py")}
    targets = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:(?!=)", text_of(ROOT / "Makefile"), re.MULTILINE))
    missing = []
    for path in PAGES:
        text = text_of(path)
        for module in re.findall(r"python3? -m ((?:bench|kcore|tests|tools)[\w.]*)", text):
            name = module.rstrip(".").replace(".", "/")
            if not {f"{name}.py", f"{name}/__main__.py"} & files:
                missing.append(f"{path.name}: python -m {module}")
        code = blocks_of(text) + "\n" + "\n".join(SPAN.findall(prose_of(path)))
        named = re.findall(r"^make ([a-z][\w-]*)", code, re.MULTILINE)
        missing += [f"{path.name}: make {target}" for target in named if target not in targets]
    assert not missing


@cache
def classes() -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Returns the name of each class -> the text of a file that defines it, and the names of its bases."""
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for path in tracked_files(".py", ".pyi", ".pyx", ".pxd", ".java"):
        text = text_of(path)
        for name, bases in re.findall(r"^ *(?:cdef |public |final )*class (\w+)([^\n:{]*)", text, re.MULTILINE):
            found.setdefault(name, []).append((text, tuple(re.findall(r"\w+", bases))))
    return found


def has_attribute(name: str, attribute: str, seen: frozenset[str] = frozenset()) -> bool:
    """Returns True if a file of a class, or of one of its bases, defines an attribute."""
    defined = re.compile(
        rf"\b(?:def|cdef|cpdef)\b[^=\n]*\b{attribute}\b|^ +{attribute}\b *[:=]|\bself\.{attribute}\b"
        rf"|^ +(?:cdef )?(?:readonly |public )*[\w\[\], ]+\b{attribute}\b",
        re.MULTILINE,
    )
    return any(
        defined.search(text)
        or any(
            has_attribute(base, attribute, seen | {name}) for base in bases if base in classes() and base not in seen
        )
        for text, bases in classes().get(name, ())
        if name not in seen
    )


def test_the_attributes_of_classes_that_documents_name_exist() -> None:
    named = {
        (page, *match.groups())
        for page, text in spans()
        if (match := re.fullmatch(r"([A-Z]\w+)\.([a-z_]\w*)(?:\(.*\))?", text))
        and match[1] not in FOREIGN_CLASSES
        and not text.endswith((".py", ".md"))
    }
    assert len(named) > 80
    assert not [f"{page}: {name}.{rest}" for page, name, rest in sorted(named) if not has_attribute(name, rest)]


# ---- settings and metrics


@cache
def known_settings() -> set[str]:
    """Returns the names of all settings of nodes, topics, groups and Kafka's brokers, and of features."""
    return {*Config.SETTINGS, *kafka_settings(), *TOPIC_SETTINGS, *GROUP_SETTINGS, *CLIENT_SETTINGS, *FEATURES}


def is_setting(name: str) -> bool:
    """Returns True if a setting has a name, perhaps with the prefix of a listener or of a mechanism."""
    while (match := re.match(r"(?:listener\.name\.\w+|plain|scram-sha-\d+|oauthbearer)\.", name)) is not None:
        name = name[match.end() :]
    return name in known_settings()


def is_known(name: str) -> bool:
    """Returns True if a name with dots is that of a setting, of a field of a message, or of an attribute."""
    first, _, second = name.partition(".")
    if is_setting(name) or name in PROTOCOL_FIELDS | OTHER_DOTTED:
        return True
    if first == "kcore":
        return is_importable(name)
    return any(has_attribute(each, second.partition(".")[0]) for each in OBJECTS.get(first, "").split())


def is_importable(name: str) -> bool:
    """Returns True if a module, or an object in a module, has a name. Imports no further module."""
    module, _, attribute = name.rpartition(".")
    path = ROOT / name.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file() or hasattr(kcore, attribute):
        return True
    if module.rpartition(".")[2][:1].isupper():
        return has_attribute(module.rpartition(".")[2], attribute)
    parent = ROOT / module.replace(".", "/")
    files = (parent.with_suffix(".py"), parent / "__init__.py", parent.with_suffix(".pyi"))
    return any(file.is_file() and re.search(rf"\b{attribute}\b", text_of(file)) is not None for file in files)


def test_the_settings_and_attributes_of_objects_that_documents_name_exist() -> None:
    name = r"[a-z][a-z0-9-]*(?:\.[A-Za-z0-9_-]+)+"
    assigned = re.compile(rf"(?:^|[ ,])(?:-c )?({name})=", re.MULTILINE)
    keys = re.compile(rf"\"({name})\":")
    files = re.compile(r"\.(?:md|pyi?|pyx|pxd|jsonl?|txt|sh|so|mdb|html|yml|properties|pem|swap|cleaned|deleted|csv)\b")
    named = set()
    for page, text in spans():
        whole = re.fullmatch(rf"({name})(?:\(.*\))?", text)
        named |= {(page, each) for each in ([whole[1]] if whole else []) + assigned.findall(text) + keys.findall(text)}
    for path in PAGES:
        code = blocks_of(text_of(path))
        named |= {(path.name, each) for each in assigned.findall(code) + keys.findall(code)}
    checked = {(page, each) for page, each in named if not OTHER_NAMES.match(each) and not files.search(each)}
    assert len(checked) > 300
    assert not [f"{page}: {each}" for page, each in sorted(checked) if not is_known(each)]


def numbers_of(text: str) -> int | None:
    """Returns the number at the beginning of a default in a document, such as "8 MiB" or "25,000"."""
    match = re.match(r"([\d,]+)(?: (KiB|MiB|GiB)\b)?", text)
    return None if match is None else int(match[1].replace(",", "")) * UNITS[match[2] or ""]


def test_the_defaults_of_settings_in_tables_are_right() -> None:
    checked = 0
    for path in PAGES:
        header = ""
        for line in text_of(path).splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|"):
                header = ""
            elif not header:
                header = " ".join(cells[:2])
            elif header == "setting default" and path.name != "settings.md":
                name, number = cells[0].strip("`"), numbers_of(cells[1])
                if number is not None and name in Config.SETTINGS:
                    checked += 1
                    assert Config.SETTINGS[name].default == number, f"{path.name}: {name}"
    assert checked >= 5


def test_the_metrics_and_views_that_documents_name_exist() -> None:
    metrics = set(re.findall(r"\bkcore_\w+", text_of(ROOT / "docs" / "metrics.md")))
    tables = {*VIEWS, *STATE_TABLES, *(f"timeline_{name}" for name in TIMELINE_TABLES)}
    views = {f"{PREFIX}{name}" for name in tables}
    sources = "\n".join(text_of(path) for path in tracked_files(".py"))
    words = set(re.findall(r"\bkcore_\w+", sources))
    roles = {"kcore_node", "kcore_owner"}
    missing = []
    for path in PAGES:
        for name, wildcard in re.findall(r"\b(kcore_[a-z_]*[a-z])(_…|_NAME)?", text_of(path)):
            is_prefix = bool(wildcard) and any(one.startswith(f"{name}_") for one in metrics | views)
            if not (name in metrics | views | words | roles or is_prefix):
                missing.append(f"{path.name}: {name}")
    assert not missing


# ---- commands


class WrongUsageError(Exception):
    """A command line that kcore refuses."""


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes parsers raise WrongUsageError instead of ending the process."""

    def error(parser: argparse.ArgumentParser, message: str) -> None:
        raise WrongUsageError(message)

    monkeypatch.setattr(argparse.ArgumentParser, "error", error)


def command_lines() -> Iterator[tuple[str, str, bool]]:
    """Yields the page of each command line of kcore, the line, and True if the line is complete.

    A line in the text may be the name of a command or of an option.
    """
    start = r"(?:[\w./]*/)?kcore (?=(?:" + "|".join(VERBS) + r")\b)"
    for path in PAGES:
        if path.name == "cli.md":
            continue
        code = blocks_of(text_of(path))
        lines = [(found, True) for found in re.findall(rf"^ *(?:[^#\n]*[ |])?{start}([^\n]+)$", code, re.MULTILINE)]
        lines += [(found, False) for found in re.findall(rf"`{start}([^`\n]+)`", prose_of(path))]
        for found, is_block in lines:
            line = re.split(r"\s#| >>? | \|", found)[0].replace("]...", "]")
            yield path.name, line.replace("…", ""), is_block and "…" not in line


def alternatives(words: list[str]) -> list[list[str]]:
    """Expands words such as `list|describe` into one command line for each alternative."""
    lines: list[list[str]] = [[]]
    for word in words:
        lines = [[*line, each] for line in lines for each in word.split("|")]
    return lines


def usage_error(words: list[str], *, may_lack_arguments: bool) -> str | None:
    """Returns the error of a command line; None if it is valid. The value of a number may be a placeholder."""
    try:
        parser_for(words[0]).parse_args(words)
    except WrongUsageError as error:
        is_placeholder = re.search(r"invalid int value: '[A-Z]+'", str(error))
        is_lacking = re.search(r"are required|expected one argument", str(error))
        if not is_placeholder and not (may_lack_arguments and is_lacking):
            return f"kcore {' '.join(words)}: {error}"
    return None


@pytest.mark.usefixtures("refused")
def test_the_command_lines_in_documents_are_valid() -> None:
    wrong = []
    count = 0
    for page, line, is_complete in command_lines():
        without_options = alternatives(shlex.split(re.sub(r"\[[^]]*\]", "", line)))
        with_options = alternatives(shlex.split(re.sub(r"[\[\]]", "", line)))
        may_lack_arguments = not is_complete or len(without_options) > 1
        errors = [usage_error(each, may_lack_arguments=may_lack_arguments) for each in without_options]
        option_errors = [usage_error(each, may_lack_arguments=may_lack_arguments) for each in with_options]
        if None not in option_errors:  # each option is for at least one of the alternatives
            errors += option_errors
        count += len(errors)
        wrong += [f"{page}: {error}" for error in errors if error is not None]
    assert count > 100
    assert not wrong


# ---- tables of the Python API and of the simulator


def defaults_of(function: Callable[..., object]) -> dict[str, object]:
    """Returns the parameters of a function with their defaults."""
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def test_the_defaults_of_the_python_api_are_right() -> None:
    page = text_of(ROOT / "docs" / "python-api.md")
    functions = {
        "open": defaults_of(kcore.open),
        "connect": defaults_of(kcore.connect),
        "`join` and `consume`": defaults_of(kcore.Group.consume)
        | {"session_timeout": SESSION_TIMEOUT_S, "heartbeat_interval": HEARTBEAT_INTERVAL_S},
        "`consume`": defaults_of(kcore.Group.consume),
    }
    checked = 0
    defaults: dict[str, object] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("parameter of "):
            defaults = functions[cells[0].removeprefix("parameter of ")]
        elif cells[:3] == ["function", "parameter", "default"]:
            defaults = functions["open"]
        elif not line.startswith("|"):
            defaults = {}
        elif defaults:
            if cells[0].strip("`") in functions or cells[0] == "":
                defaults = functions.get(cells[0].strip("`"), defaults)
                cells = cells[1:]
            for name in re.findall(r"`(\w+)`", cells[0]):
                assert name in defaults, line
                if cells[1]:
                    checked += 1
                    assert repr(defaults[name]).replace("'", '"') == cells[1], line
    assert checked > 20


def test_the_table_of_planted_defects_has_the_recorded_seeds() -> None:
    recorded = json.loads(text_of(ROOT / "tools" / "simulate" / "mutants" / "found.json"))
    section = text_of(ROOT / "docs" / "simulation.md").partition("## Planted defects\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| .+ \| ([\w ]+) \| (\d+) \| ([\d,]+) \| [\d.]+ s \|$", section, re.MULTILINE)
    documented = {name: [checker, int(seed), int(steps.replace(",", ""))] for name, checker, seed, steps in rows}
    assert documented == {name: found[:3] for name, found in recorded.items()}
