"""Reads event logs whose files Spark has read: each task gets the files of its partitions as rows, in order.

Executors need neither their own access to the storage nor a shared folder. Spark's readers may return the files in any
order, because each task sorts its rows. The classes that read local files also parse the content of these rows. So a
log in storage gives the same rows, and the same reports of unreadable parts, as its copy in a local folder.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.errors import KcoreError
from kcore.spark.events.segments import CLEANER_CHECKPOINT, SegmentPartition, partitions_of
from kcore.spark.events.sources import DATA_FILE, Part, SegmentSource, Source
from kcore.spark.export.manifest import MANIFEST, Manifest
from kcore.spark.export.storage import Files

if TYPE_CHECKING:
    import pyarrow as pa

FILE_DDL = "task int, part int, number int, name string, content binary"
"""Columns of the files of a task: task, index of the partition, position in the order of reading, name, content."""


class StoredFile(NamedTuple):
    """A file of a partition: its name, and its content, or None if it was not read."""

    part: int
    name: str
    content: Any


class StoredLog(NamedTuple):
    """A log in storage.

    Attributes:
        source: opens the source; its argument is a function that returns a file's content as a buffer of pyarrow.
        files: partition -> the names of its existing files, in the order in which the source reads them.
    """

    source: _Export | _Segments
    files: Mapping[tuple[str, int], tuple[str, ...]]


def stored_log(files: Files) -> StoredLog:
    """Returns the log in a folder.

    Raises:
        KcoreError: the folder contains neither an export nor segment files of a broker.
    """
    if files.exists(MANIFEST):
        return _export(files)
    sizes = files.sizes()
    folders: dict[str, list[str]] = {}
    for name in sizes:
        folder, _, own = name.rpartition("/")
        place = folder or files.uri.rpartition("/")[2]
        if "/" not in folder:
            folders.setdefault(place, []).append(own)
    checkpoint = files.read(CLEANER_CHECKPOINT).decode() if CLEANER_CHECKPOINT in sizes else ""
    partitions = partitions_of(folders, checkpoint)
    if not partitions and DATA_FILE in sizes:
        raise KcoreError(
            f"{files.uri} is a data folder, which Spark tasks cannot open: export the folder with `kcore export` first"
        )
    if not partitions:
        raise KcoreError(f"{files.uri} contains neither an export nor segment files of a broker")
    inside = {part[:2]: tuple(_in_root(path, files, sizes) for path in part.paths) for part in partitions}
    renamed = [part._replace(paths=inside[part[:2]]) for part in partitions]
    return StoredLog(_Segments(files.uri, tuple(renamed)), inside)


def _in_root(path: str, files: Files, sizes: Mapping[str, int]) -> str:
    """Returns a segment's path relative to the root.

    If the root is a partition's own folder, the result is the file name.
    """
    return path if path in sizes else path.rpartition("/")[2]


def _export(files: Files) -> StoredLog:
    manifest = Manifest.load(files)
    sizes = files.sizes()
    present = {
        topic_partition: tuple(file.path for file in part.files if file.path in sizes)
        for topic_partition, part in manifest.partitions.items()
    }
    return StoredLog(_Export(files.uri, manifest), present)


class _Segments(NamedTuple):
    """The segment files of a broker. A call of the object opens them as a source."""

    uri: str
    partitions: tuple[SegmentPartition, ...]

    def ends_before(self, place: tuple[str, int], start: int) -> frozenset[str]:
        """Returns the files of a partition with only offsets below `start`.

        The next file shows the end of a file: it begins at or below `start`.
        """
        (paths,) = (one.paths for one in self.partitions if one[:2] == place)
        bases = [int(path.rpartition("/")[2].partition(".")[0]) for path in paths]
        return frozenset(path for path, following in zip(paths, bases[1:], strict=False) if following <= start)

    def __call__(self, read: Callable[[str], Any]) -> Source:
        return SegmentSource(self.uri, self.partitions, lambda path: read(path).to_pybytes())


class _Export(NamedTuple):
    """An export in a folder or an object store. A call of the object opens the export as a source."""

    uri: str
    manifest: Manifest

    def ends_before(self, place: tuple[str, int], start: int) -> frozenset[str]:
        """Returns the files of a partition with only offsets below `start`."""
        return frozenset(one.path for one in self.manifest.partitions[place].files if one.last_offset < start)

    def __call__(self, read: Callable[[str], Any]) -> Source:
        import pyarrow as pa  # noqa: PLC0415

        from kcore.spark.export.exporter import ExportSource  # noqa: PLC0415

        return ExportSource(self.uri, self.manifest, lambda name: pa.BufferReader(read(name)))


class FileRows:
    """The files of a Spark task, which are read one after another. At most one batch of rows is in memory.

    Args:
        batches: rows with the columns `FILE_DDL`, sorted by `part` and then by `number`. The first row of each
            partition is a placeholder with an empty name.
        present: the names of all files.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], present: Collection[str]) -> None:
        self._present = present
        self._rows = chain.from_iterable(map(_files_of, batches))
        self._next: StoredFile | None = None
        self._part = -1

    def parts(self) -> Iterator[int]:
        """Yields the indexes of the partitions. Before the next index, it skips those files of the last partition that
        the caller has not read.
        """
        while (row := self._peek()) is not None:
            if row.part == self._part:
                self._next = None
                continue
            self._part = row.part
            yield row.part

    def read(self, name: str) -> Any:
        """Returns the content of a file as a buffer of pyarrow. The caller reads the files of a partition in order.

        Raises:
            FileNotFoundError: there is no such file.
        """
        while name in self._present and (row := self._peek()) is not None and row.part == self._part:
            self._next = None
            if row.name == name:
                return row.content
        raise FileNotFoundError(errno.ENOENT, "No such file", name)

    def _peek(self) -> StoredFile | None:
        if self._next is None:
            self._next = next(self._rows, None)
        return self._next


def _files_of(batch: pa.RecordBatch) -> Iterator[StoredFile]:
    content = batch.column("content")
    for row, (part, name) in enumerate(
        zip(batch.column("part").to_pylist(), batch.column("name").to_pylist(), strict=True)
    ):
        yield StoredFile(part, name, content[row].as_buffer())


def sources_of(
    batches: Iterable[pa.RecordBatch],
    log: StoredLog,
    parts: list[Part],
    beside: Mapping[tuple[str, int], Sequence[str]] | None = None,
) -> Iterator[tuple[Source, Part]]:
    """Yields the partitions of a task with their source. The caller reads each partition before it requests the next.

    Args:
        batches: rows of files, in the columns of `FILE_DDL`: the files that this task reads.
        log: the log in storage that consists of these files.
        parts: the partitions of all tasks.
        beside: the names of other files of partitions, which come before the files of the log.
    """
    others = beside or {}
    names = frozenset(chain(*log.files.values(), *others.values()))
    rows = FileRows(batches, names)
    source = log.source(rows.read)
    source.beside = lambda part: [rows.read(name) for name in others.get(part[:2], ())]
    for index in rows.parts():
        yield source, parts[index]
