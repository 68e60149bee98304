"""The manifest of an export: which files it is made of and what each holds, so that anybody can check that it is whole.

It is the last thing that is written and the first that is read: a file that it does not name is no part of the export.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
from types import NoneType
from typing import Any, Final

from kcore.errors import KcoreError

MANIFEST = "manifest.json"
JOURNAL = "manifest.jsonl"
"""What came to the manifest since it was written, a file a line: to write all of it for each file would take ever
longer. It lies there only for as long as it is shorter than the manifest."""
MOST_NOTED = 1_000
MAX_FAULTS = 1_000
"""How many faults of a partition are kept."""
FORMAT_VERSION = 1
FORMATS = ("parquet", "jsonl")
CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class ExportedFile:
    """One file of an export.

    Attributes:
        path: its path below the export's folder, with `/`.
        first_offset: of its first row.
        last_offset: of its last row.
        count: how many rows it has.
        size_bytes: how long it is.
        sha256: of its bytes, as hexadecimal digits.
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
            raise ValueError(f"path {self.path!r} does not lie in the export")


@dataclass(slots=True)
class ExportedFault:
    """What could not be read when it was to be exported; see `kcore.spark.events.event.LogFault`.

    Attributes:
        offset: at or after which offset, -1 if that is not known.
        kind: a word for programs.
        detail: for people.
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
        topic: its topic.
        partition: its number.
        next_offset: where the next run goes on.
        cleaned_to: how far compaction had come in what was read; None if the source of the last run did not know.
        active_offset: where the newest segment began; None if there were none.
        log_start: where the log began, or what was asked of it.
        asked_from: the offset that was asked for, if the log was there before: what it held is not exported; 0: none.
        faults: what could not be read, the first `MAX_FAULTS` of it.
        files: by offset.
    """

    topic: str
    partition: int
    next_offset: int
    cleaned_to: int | None = None
    active_offset: int | None = None
    log_start: int = 0
    asked_from: int = 0
    faults: list[ExportedFault] = field(default_factory=list)
    files: list[ExportedFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        _check_types(self)

    def lacks(self, fault: ExportedFault) -> None:
        """Something could not be read; it may be known already."""
        if len(self.faults) < MAX_FAULTS and fault not in self.faults:
            self.faults.append(fault)

    def forget_end(self) -> None:
        """What could not be read behind the last row will be read again: it may have been half written."""
        self.faults = [fault for fault in self.faults if fault.offset < self.next_offset]


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "int | None": (int, NoneType),
    "str": (str,),
    "list[ExportedFile]": (list,),
    "list[ExportedFault]": (list,),
}
"""What a value may be, by its annotation."""


def _check_types(of: ExportedFile | ExportedFault | ExportedPartition) -> None:
    """TypeError if a field is not what its annotation says: people edit manifests."""
    for one in fields(of):
        value = getattr(of, one.name)
        if not isinstance(value, _KINDS[str(one.type)]):
            raise TypeError(f"{one.name} is {value!r}, and should be {one.type}")


@dataclass(slots=True)
class Manifest:
    """All of an export.

    Attributes:
        form: `parquet` or `jsonl`.
        partitions: by topic and number.
        noted: how many lines the journal has.
    """

    form: str
    partitions: dict[tuple[str, int], ExportedPartition] = field(default_factory=dict)
    noted: int = field(default=0, compare=False)

    def note(self, folder: Path, part: ExportedPartition) -> None:
        """The newest file of a partition is part of the export now, durably."""
        if not (folder / MANIFEST).exists() or self.noted >= max(MOST_NOTED, self._file_count()):
            self.save(folder)
            return
        line = {**asdict(part), "files": [asdict(part.files[-1])]}
        begins = not self.noted
        with open(folder / JOURNAL, "ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if begins:
            sync_folder(folder)
        self.noted += 1

    def _file_count(self) -> int:
        return sum(len(part.files) for part in self.partitions.values())

    def save(self, folder: Path) -> None:
        """Puts it in the place of the one before, whole or not at all; the journal goes."""
        parts = [asdict(part) for _, part in sorted(self.partitions.items())]
        document = {"version": FORMAT_VERSION, "format": self.form, "partitions": parts}
        write_whole(folder / MANIFEST, (json.dumps(document, indent=1) + "\n").encode())
        (folder / JOURNAL).unlink(missing_ok=True)
        self.noted = 0

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """The manifest of an export.

        Raises:
            KcoreError: there is none, or it cannot be read.
        """
        try:
            document: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
            if document["version"] != FORMAT_VERSION:
                raise KcoreError(f"{folder}: the manifest is of version {document['version']}, not {FORMAT_VERSION}")
            manifest = cls(document["format"])
            if manifest.form not in FORMATS:
                raise ValueError(f"format {manifest.form!r} is none of {', '.join(FORMATS)}")
            for part in document["partitions"]:
                found = _partition(part)
                manifest.partitions[found.topic, found.partition] = found
            manifest._take_journal(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KcoreError(f"{folder}: the manifest cannot be read: {error}") from error
        return manifest

    def _take_journal(self, folder: Path) -> None:
        """What the journal says beyond the manifest, which may have been written from it already."""
        path = folder / JOURNAL
        data = path.read_bytes() if path.exists() else b""
        for line in data[: data.rfind(b"\n") + 1].splitlines():  # a line without an end was never whole
            part = _partition(json.loads(line))
            known = self.partitions.get((part.topic, part.partition))
            if known is None:
                self.partitions[part.topic, part.partition] = part
            elif part.next_offset > known.next_offset:
                known.files += part.files
                part.files = known.files
                self.partitions[part.topic, part.partition] = part
            self.noted += 1


def _partition(said: dict[str, Any]) -> ExportedPartition:
    files = [ExportedFile(**one) for one in said["files"]]
    faults = [ExportedFault(**one) for one in said.get("faults", ())]
    return ExportedPartition(**{**said, "files": files, "faults": faults})


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that is there whole or not at all, whenever the machine stops."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    put_in_place(temporary, path)


def put_in_place(temporary: Path, path: Path) -> None:
    """Gives a finished file its name, durably."""
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names of the files in a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def digest(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()
