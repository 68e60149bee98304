"""`kcore export`: exports event logs to files, and verifies that an export is complete."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kcore.cli import output, target
from kcore.config.paths import check_path
from kcore.errors import ConfigError, KafkaError, KcoreError, PartitionErrors
from kcore.printable import counted

if TYPE_CHECKING:
    from kcore.spark.events.sources import Source
    from kcore.spark.export.exporter import ExportReport
    from kcore.spark.export.manifest import ExportedFile, Manifest

# Not imported from kcore.spark.export.exporter: the arguments exist even without the extra `spark`.
FORMATS = ("parquet", "jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments; `kcore export verify FOLDER` checks an export."""
    parser.add_argument(
        "data",
        nargs="*",
        metavar="DIR",
        help="a data folder or a broker's log folder; `kcore export verify FOLDER` verifies an export",
    )
    target.add_bootstrap(parser)
    parser.add_argument(
        "--cluster",
        metavar="URL",
        help="the store of a cluster, postgresql://USER@HOST[,HOST]/DATABASE or local://FOLDER; the nodes of the "
        "cluster may be running",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="the export folder, a path or a URI; an existing export is continued"
    )
    parser.add_argument(
        "--topic", action="append", default=[], help="a topic (may be repeated); default: the internal topics"
    )
    parser.add_argument(
        "--from", type=int, dest="from_offset", metavar="OFFSET", default=0, help="the first offset (default 0)"
    )
    parser.add_argument("--to", type=int, dest="to_offset", metavar="OFFSET", help="the offset before which to stop")
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="Parquet, or one JSON object per line")
    parser.add_argument(
        "--follow", action="store_true", help="also export the new records of a running server, until interrupted"
    )
    parser.add_argument(
        "--interval",
        type=float,
        metavar="SECONDS",
        default=5.0,
        help="polling interval of --follow in seconds (default 5)",
    )


def run(options: argparse.Namespace) -> int:
    """Exports, or verifies an export."""
    try:
        from kcore.spark.events.sources import is_cluster  # noqa: PLC0415
        from kcore.spark.export.exporter import export, open_export, verify  # noqa: PLC0415
        from kcore.spark.frames.output import check_apart  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"exports need the extra `spark` (pip install kcore[spark]): {error}") from error
    if options.data[:1] == ["verify"]:
        return _verify(verify, options)
    named = bool(options.data) + (options.bootstrap is not None) + (options.cluster is not None)
    if len(options.data) > 1 or named != 1 or options.out is None:
        raise ConfigError(
            "name one source (a data folder, --bootstrap HOST:PORT of a running server, or --cluster URL) and "
            "--out FOLDER"
        )
    for name, folder in (*(("SOURCE", one) for one in options.data), ("--out", options.out)):
        check_path(name, folder)
    if options.cluster is not None and not is_cluster(options.cluster):
        raise ConfigError("--cluster: the URL must begin with postgresql:// or local://")
    output.check_offsets(options.from_offset, options.to_offset)
    if not 0 <= options.interval <= threading.TIMEOUT_MAX:
        raise ConfigError(f"--interval {options.interval}: must be a number of seconds, 0 or more")
    for folder in options.data:
        check_apart(folder, options.out)
    if options.follow and options.data:
        raise ConfigError("--follow needs --bootstrap or --cluster: a closed data folder gets no new records")
    if not options.follow:
        return _report(_once(export, options))
    _report(_once(export, options))
    manifest = open_export(options.out, options.format)
    while True:
        time.sleep(options.interval)
        try:
            _report(_once(export, options, manifest), quiet=True)
        except (KcoreError, KafkaError, PartitionErrors, TimeoutError) as error:  # it may return; files are kept
            output.complain(f"{error}; retrying")


def _report(report: ExportReport, quiet: bool = False) -> int:
    """Prints the written rows and the records that could not be read; returns 1 if there are such records."""
    if report.files or not quiet:
        output.say(f"{counted(report.rows, 'rows')} in {counted(report.files, 'files')}")
    for topic, partition, offset in () if quiet else report.begun_late:
        output.say(
            f"{topic}-{partition} began at offset {offset} when this export started: earlier records are missing"
        )
    for fault in report.faults:
        output.say(f"{fault.topic}-{fault.partition}@{fault.offset}: {fault.kind}: {fault.detail}")
    return 1 if report.faults else 0


def _once(
    export: Callable[..., ExportReport], options: argparse.Namespace, manifest: Manifest | None = None
) -> ExportReport:
    import kcore  # noqa: PLC0415
    from kcore.broker.metadata.names import INTERNAL_TOPICS  # noqa: PLC0415
    from kcore.spark.events.sources import ServerSource, open_source  # noqa: PLC0415

    topics = frozenset(options.topic) or INTERNAL_TOPICS
    more = {"start": options.from_offset, "stop": options.to_offset, "form": options.format}
    with ExitStack() as opened:
        source: Source
        if options.bootstrap is None:
            source = opened.enter_context(open_source(options.cluster or options.data[0]))
        else:
            node = opened.enter_context(kcore.connect(options.bootstrap, security=target.security(options)))
            source = ServerSource(node, topics)
        existing = {part.topic for part in source.parts()}
        missing = sorted(frozenset(options.topic) - existing)
        if options.bootstrap is not None:
            for name in missing:  # the source lacks topics that the client may not describe, too
                node.topics.describe(name, missing_ok=True)
        if missing:
            raise KcoreError(f"topics that do not exist: {', '.join(missing)}")
        if manifest is None and not existing & topics:
            output.complain("the source has no internal topics: name topics with --topic")
        return export(
            source, options.out, topic_filter=topics.__contains__, on_file=_report_file, manifest=manifest, **more
        )


def _report_file(written: ExportedFile) -> None:
    """Prints the progress of a long export to a terminal."""
    if sys.stderr.isatty():
        print(f"{written.path}: {counted(written.count, 'rows')}, up to offset {written.last_offset}", file=sys.stderr)


def _verify(verify: Callable[[str], list[str]], options: argparse.Namespace) -> int:
    if len(options.data) != 2:
        raise ConfigError("name the folder of the export: kcore export verify FOLDER")
    check_path("FOLDER", options.data[1])
    findings = verify(options.data[1])
    for finding in findings:
        output.say(finding)
    output.say(counted(len(findings), "findings") if findings else "the export is complete")
    return 1 if findings else 0
