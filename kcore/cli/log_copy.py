"""`kcore log copy`: copies a data folder, even while a server has it open."""

from __future__ import annotations

import argparse

from kcore.cli import output, target
from kcore.cli.log_verify import partition_name, verify
from kcore.config.paths import check_path
from kcore.log.lmdb_copy import copy_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the action's arguments."""
    parser.add_argument("data", metavar="DIR", help="a data folder; a server may have it open")
    parser.add_argument("destination", metavar="DEST", help="the folder of the copy, new or empty")
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Copies a folder and verifies the copy, which contains every write set acknowledged before the start.

    Returns:
        0, or 1 if the copy has findings, which means that the folder itself is damaged.

    Raises:
        DataFolderError: the folder is damaged, or the destination is not empty.
        LogError: the disk is full, or a file cannot be read or written.
    """
    target.require_folder(options.data, "the database's own tools copy it")
    check_path("DEST", options.destination)
    size = copy_folder(options.data, options.destination)
    findings, names, partitions = verify(options.destination)
    if findings:
        rows = [(partition_name(finding, names), finding.offset, finding.kind, finding.detail) for finding in findings]
        output.print_rows(("partition", "offset", "finding", "detail"), rows, options.format)
        return 1
    output.print_rows(("copy", "bytes", "partitions"), [(options.destination, size, partitions)], options.format)
    return 0
