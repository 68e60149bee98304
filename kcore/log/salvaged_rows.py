"""Rows of metadata that a reader has found in a damaged data folder: checks their checksums, and corrects flipped bits.

A folder of an older format version has no checksums. The free pages of a folder may have rows of an older version, too.
"""

from __future__ import annotations

from typing import NamedTuple

from kcore.log.lmdb_layout import (
    FORMAT_COPY_KEY,
    FORMAT_KEY,
    JOURNAL_KEY,
    NODE_JOURNAL_PREFIX,
    PARTITION_PREFIX,
    is_meta_key,
    row_name,
)
from kcore.log.row_checksum import checked_value, correct_row, has_checksum
from kcore.log.salvaged_content import Tier

Versions = dict[bytes, list[tuple[Tier, bytes]]]
"""Key -> versions of its value, as (tier, value)."""


class SalvagedRows(NamedTuple):
    """The rows of metadata in a damaged data folder.

    Attributes:
        rows: the versions of each value without checksums, best tier first.
        damaged: key -> stored value of each row whose checksum is wrong, and that cannot be corrected.
        problems: descriptions of the damage, except that of partitions' rows.
        is_corrected: True if a row was corrected, or if the format version or its copy must be written again.
        doubts_journal: True if the reference to a journal may be missing.
    """

    rows: Versions
    damaged: dict[bytes, bytes]
    problems: list[str]
    is_corrected: bool
    doubts_journal: bool


def check_rows(stored: Versions, misplaced: list[tuple[bytes, bytes]]) -> SalvagedRows:
    """Checks the rows that were read from pages.

    Args:
        stored: the versions of each value as LMDB stores them. Some keys may be damaged.
        misplaced: current rows whose keys are out of order, so that the keys are probably damaged.

    Returns:
        The rows. In a folder without checksums, they are all rows with keys that kcore writes.
    """
    for versions in stored.values():
        versions.sort(key=lambda version: version[0])
    if not _folder_has_checksums(stored):
        rows = {key: versions for key, versions in stored.items() if is_meta_key(key)}
        problems = [f"an unknown key in meta: {key.hex()}" for key in stored if key not in rows]
        return SalvagedRows(rows, {}, problems, False, False)
    checked = _check_rows(stored)
    for key, value in misplaced:
        sound = checked_value(key, value)
        found = correct_row(key, value) if sound is None else (key, sound)
        if found is not None and is_meta_key(found[0]):
            checked.rows.setdefault(found[0], []).insert(0, (Tier.LIVE, found[1]))
    return checked


def _folder_has_checksums(stored: Versions) -> bool:
    """Returns True if the folder has checksums. Only rows before the damage show this, if there are any."""
    rows = [(key, tier, value) for key, versions in stored.items() for tier, value in versions if key != FORMAT_KEY]
    current = [(key, value) for key, tier, value in rows if tier.is_current]
    return any(has_checksum(key, value) for key, value in current or [(key, value) for key, _, value in rows])


def _check_rows(stored: Versions) -> SalvagedRows:
    rows: Versions = {}
    damaged: dict[bytes, bytes] = {}
    is_corrected = False
    for key, versions in stored.items():
        for tier, value in versions:
            if key == FORMAT_KEY:
                rows.setdefault(key, []).append((tier, value))
            elif is_meta_key(key) and (checked := checked_value(key, value)) is not None:
                rows.setdefault(key, []).append((tier, checked))
            elif not tier.is_current:
                if key.startswith(PARTITION_PREFIX):
                    rows.setdefault(key, []).append((tier, value))  # perhaps of an older format version
            elif (corrected := correct_row(key, value)) is not None and is_meta_key(corrected[0]):
                rows.setdefault(corrected[0], []).append((tier, corrected[1]))
                is_corrected = True
            else:
                damaged.setdefault(key, value)
    for versions in rows.values():
        versions.sort(key=lambda version: version[0])
    is_corrected = _settle_version(rows) or is_corrected
    problems = [_problem(key) for key in damaged if not key.startswith(PARTITION_PREFIX)]
    doubts_journal = any(
        key == JOURNAL_KEY or key.startswith(NODE_JOURNAL_PREFIX) or not is_meta_key(key) for key in damaged
    )
    return SalvagedRows(rows, damaged, problems, is_corrected, doubts_journal)


def _problem(key: bytes) -> str:
    if not is_meta_key(key):
        return f"an unknown key in meta: {key.hex()}"
    return f"{row_name(key)}: the checksum is wrong"


def _settle_version(rows: Versions) -> bool:
    """Replaces the format version by its copy. Returns True if they differ, or if the copy is missing."""
    copies = [copy for copy in rows.pop(FORMAT_COPY_KEY, ()) if copy[0].is_current]
    if not copies:
        return True
    found = [version for version in rows.get(FORMAT_KEY, ()) if version[0].is_current]
    if found and found[0][1] == copies[0][1]:
        return False
    rows[FORMAT_KEY] = [(Tier.LIVE, copies[0][1])]
    return True
