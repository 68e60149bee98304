"""The manifest of an export: lists the files and their content, so that the export can be verified.

An export writes the manifest last and reads it first: files that the manifest does not name are not part of the export.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
from types import NoneType
from typing import Any, Final

from kcore.errors import KcoreError
from kcore.json_text import parse_json
from kcore.spark.export.storage import Files, Storage, storage_of

MANIFEST = "manifest.json"
JOURNAL = "manifest.jsonl"
"""The name of the journal. It has a line for each file that was exported after the last write of the manifest.

The manifest grows with each file, so writing it for each file would take longer and longer. Instead, `Manifest.note`
appends a line to the journal. It writes the manifest and removes the journal once the journal has `MOST_NOTED` lines
and at least as many lines as the export has files.
"""
MOST_NOTED = 1_000
MAX_FAULTS = 1_000
"""Maximum number of unreadable parts (`LogFault`) that the manifest lists per partition."""
FORMAT_VERSION = 1
FORMATS = ("parquet", "jsonl")
SAVED_EVERY = 16
"""Number of files after which `Manifest.note` writes the manifest, on storage that cannot append to a journal."""


@dataclass(slots=True)
class ExportedFile:
    """One file of an export.

    Attributes:
        path: the path of the file below the export's folder, with `/`.
        first_offset: the offset of the file's first row.
        last_offset: the offset of the file's last row.
        count: the number of rows.
        size_bytes: the number of bytes in the file.
        sha256: the SHA-256 checksum of the file, in hexadecimal digits.
    """

    path: str
    first_offset: int
    last_offset: int
    count: int
    size_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        _check_types(self)
        place = PurePosixPath(self.path)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"path {self.path!r} is outside of the export")


@dataclass(slots=True)
class ExportedFault:
    """An unreadable part of the source, recorded at export: a `LogFault` without topic and partition.

    Attributes:
        offset: the damage is at or after this offset, -1 if unknown.
        kind: an identifier for programs.
        detail: a description for people.
    """

    offset: int
    kind: str
    detail: str

    def __post_init__(self) -> None:
        _check_types(self)


@dataclass(slots=True)
class ExportedPartition:
    """One partition of an export.

    Attributes:
        topic: the name of the partition's topic.
        partition: the partition's number.
        next_offset: the start of the next run.
        cleaned_to: the offset up to which compaction had run; None if the source of the last run did not know this
            offset.
        active_offset: the base offset of the newest segment; None without segments.
        log_start: the start of the log, or the requested start offset if this offset is higher.
        requested_start: the requested start offset, if this offset is after the start of the log; else 0. The export
            lacks earlier rows.
        faults: the unreadable parts, the first `MAX_FAULTS` of them.
        files: the partition's files by offset.
        topic_id: the id of the topic in hexadecimal digits; None if no source knew it.
    """

    topic: str
    partition: int
    next_offset: int
    cleaned_to: int | None = None
    active_offset: int | None = None
    log_start: int = 0
    requested_start: int = 0
    faults: list[ExportedFault] = field(default_factory=list)
    files: list[ExportedFile] = field(default_factory=list)
    topic_id: str | None = None

    def __post_init__(self) -> None:
        _check_types(self)

    def lacks(self, fault: ExportedFault) -> None:
        """Records an unreadable part unless it is recorded already."""
        if len(self.faults) < MAX_FAULTS and fault not in self.faults:
            self.faults.append(fault)

    def forget_end(self) -> None:
        """Drops the unreadable parts after the last row from `faults`.

        They may be half-written parts of the log, which the next run reads again.
        """
        self.faults = [fault for fault in self.faults if fault.offset < self.next_offset]


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "int | None": (int, NoneType),
    "str": (str,),
    "str | None": (str, NoneType),
    "list[ExportedFile]": (list,),
    "list[ExportedFault]": (list,),
}
"""Annotation of a field -> the types that its value may have."""


def _check_types(of: ExportedFile | ExportedFault | ExportedPartition) -> None:
    """Raises TypeError if a field does not match its annotation, because people may edit manifests."""
    for declared in fields(of):
        value = getattr(of, declared.name)
        if not isinstance(value, _KINDS[str(declared.type)]):
            raise TypeError(f"{declared.name} is {value!r}, but must be {declared.type}")


@dataclass(slots=True)
class Manifest:
    """The content of an export.

    Attributes:
        form: `parquet` or `jsonl`.
        partitions: (topic, partition number) -> the exported partition.
        noted: the number of files that were added since the manifest was last written.
    """

    form: str
    partitions: dict[tuple[str, int], ExportedPartition] = field(default_factory=dict)
    noted: int = field(default=0, compare=False)

    def note(self, folder: str | Path | Storage, part: ExportedPartition) -> None:
        """Adds the newest file of a partition to the export durably.

        On storage that cannot append to a journal, it writes the manifest once per `SAVED_EVERY` files.
        """
        storage = storage_of(folder)
        if not storage.can_append:
            self.noted += 1
            if self.noted >= SAVED_EVERY:
                self.save(storage)
            return
        if not storage.exists(MANIFEST) or self.noted >= max(MOST_NOTED, self._file_count()):
            self.save(storage)
            return
        line = {**asdict(part), "files": [asdict(part.files[-1])]}
        storage.append(JOURNAL, json.dumps(line).encode() + b"\n")
        self.noted += 1

    def _file_count(self) -> int:
        return sum(len(part.files) for part in self.partitions.values())

    def save(self, folder: str | Path | Storage) -> None:
        """Replaces the stored manifest atomically and removes the journal."""
        storage = storage_of(folder)
        parts = [asdict(part) for _, part in sorted(self.partitions.items())]
        document = {"version": FORMAT_VERSION, "format": self.form, "partitions": parts}
        storage.write(MANIFEST, (json.dumps(document, indent=1) + "\n").encode())
        storage.delete(JOURNAL)
        self.noted = 0

    @classmethod
    def load(cls, folder: str | Path | Files) -> Manifest:
        """Reads the manifest of an export.

        Raises:
            KcoreError: there is no manifest, or it cannot be read.
        """
        storage = folder if isinstance(folder, Files) else storage_of(folder)
        try:
            document: dict[str, Any] = parse_json(storage.read(MANIFEST))
            if document["version"] != FORMAT_VERSION:
                raise KcoreError(
                    f"{storage.uri}: the manifest has version {document['version']}; "
                    f"supported is version {FORMAT_VERSION}"
                )
            manifest = cls(document["format"])
            if manifest.form not in FORMATS:
                raise ValueError(f"format {manifest.form!r}; valid: {', '.join(FORMATS)}")
            for part in document["partitions"]:
                partition = _partition(part)
                manifest.partitions[partition.topic, partition.partition] = partition
            manifest._take_journal(storage)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KcoreError(f"{storage.uri}: the manifest cannot be read: {error}") from error
        return manifest

    def _take_journal(self, storage: Files) -> None:
        """Applies the journal to the manifest. The manifest may already contain the lines of the journal."""
        data = storage.read(JOURNAL) if storage.exists(JOURNAL) else b""
        for line in data[: data.rfind(b"\n") + 1].splitlines():  # an unterminated line was not written completely
            part = _partition(parse_json(line))
            earlier = self.partitions.get((part.topic, part.partition))
            if earlier is None:
                self.partitions[part.topic, part.partition] = part
            elif part.next_offset > earlier.next_offset:
                earlier.files += part.files
                part.files = earlier.files
                self.partitions[part.topic, part.partition] = part
            self.noted += 1


def _partition(document: dict[str, Any]) -> ExportedPartition:
    files = [ExportedFile(**row) for row in document["files"]]
    faults = [ExportedFault(**row) for row in document.get("faults", ())]
    return ExportedPartition(**{**document, "files": files, "faults": faults})
