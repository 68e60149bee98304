"""Folders of exports: local folders, and folders in object storage and HDFS, through the file systems of pyarrow."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kcore.errors import ConfigError, KcoreError

CHUNK_BYTES: Final = 1 << 20
ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "wasbs": "abfs"}
"""URI scheme of Hadoop -> pyarrow's scheme for the same storage. Other schemes have equal names in Hadoop and pyarrow.
"""


OBJECT_STORAGE: Final = ("s3", "gcs", "abfs")
"""Names of pyarrow's file systems that have no folders."""


class Files(ABC):
    """The files below a folder, read and written as a whole. Names are relative to the folder, with `/`.

    Attributes:
        uri: the path or URI of the folder.
    """

    uri: str

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Returns the content of a file. Raises FileNotFoundError if it does not exist."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Replaces a file atomically and durably."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Deletes a file if it exists."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Returns the size of each file in the folder and its subfolders, by name."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Returns True if a file exists."""


class Storage(Files):
    """The files below a folder, which can also be read and written in parts.

    Attributes:
        can_append: True if `append` works. Objects of object storage cannot grow.
    """

    can_append = False

    @abstractmethod
    def open(self, name: str) -> Any:
        """Opens a file for reading, as a file of pyarrow."""

    @abstractmethod
    def create(self, name: str) -> Any:
        """Returns a context manager for a new `HashedFile`. The file is complete if the block ends without an error."""

    def prepare(self) -> None:  # object storage has no folders
        """Creates the folder if it does not exist."""

    def append(self, name: str, data: bytes) -> None:
        """Appends to a file durably."""
        raise ConfigError(
            f"{self.uri}: cannot append {len(data)} bytes to {name}: objects can only be written as a whole"
        )


class HashedFile:
    """A file that is being written: computes the size and the SHA-256 of the written bytes."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size_bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Writes bytes, and adds them to the hash."""
        self._digest.update(data)
        size = memoryview(data).nbytes
        self.size_bytes += size
        self._file.write(data)
        return size

    def tell(self) -> int:
        """Returns the number of written bytes."""
        return self.size_bytes

    def flush(self) -> None:
        """Does nothing: the storage flushes at the end."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the content, in hexadecimal digits."""
        return self._digest.hexdigest()


class LocalStorage(Storage):
    """A folder of this machine."""

    can_append = True

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.uri = str(path)

    def prepare(self) -> None:
        """Implements `Storage.prepare`."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            self.check_folder()
            raise

    def check_folder(self) -> None:
        """Raises KcoreError if the path, or a part of it, is a file."""
        for place in (self.path, *self.path.parents):
            if place.exists() and not place.is_dir():
                raise KcoreError(f"{place} is a file: name a folder")

    def read(self, name: str) -> bytes:
        """Implements `Storage.read`."""
        return (self.path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Implements `Storage.write`."""
        write_whole(self.path / name, data)

    def append(self, name: str, data: bytes) -> None:
        """Implements `Storage.append`. Makes the name of a new file durable, too."""
        path = self.path / name
        begins = not path.exists()
        with open(path, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if begins:
            sync_folder(path.parent)

    def delete(self, name: str) -> None:
        """Implements `Storage.delete`."""
        (self.path / name).unlink(missing_ok=True)

    def exists(self, name: str) -> bool:
        """Implements `Storage.exists`."""
        return (self.path / name).exists()

    def sizes(self) -> dict[str, int]:
        """Implements `Storage.sizes`."""
        files = (path for path in self.path.rglob("*") if path.is_file())
        return {path.relative_to(self.path).as_posix(): path.stat().st_size for path in files}

    def open(self, name: str) -> Any:
        """Implements `Storage.open`."""
        import pyarrow as pa  # noqa: PLC0415

        return pa.OSFile(str(self.path / name), "rb")

    @contextmanager
    def create(self, name: str) -> Iterator[HashedFile]:
        """Implements `Storage.create`."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        with open(temporary, "wb") as file:
            yield HashedFile(file)
            file.flush()
            os.fsync(file.fileno())
        put_in_place(temporary, path)


class ArrowStorage(Storage):
    """A folder of a file system of pyarrow: S3, Azure, Google Cloud Storage or HDFS.

    Credentials and the region come from the environment, as for other programs of that storage. The URI may have
    options of pyarrow: `s3://bucket/events?endpoint_override=HOST:PORT&scheme=http`.

    Args:
        uri: the URI of the folder, such as `s3://bucket/events`.

    Raises:
        ConfigError: pyarrow does not know the scheme, or the URI is malformed.
    """

    def __init__(self, uri: str) -> None:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import fs  # noqa: PLC0415

        scheme, separator, rest = uri.partition("://")
        name = f"{ARROW_SCHEMES.get(scheme, scheme)}{separator}{rest}"
        try:
            self._files, root = fs.FileSystem.from_uri(name)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise ConfigError(f"{uri}: {error}") from error
        self._root = root.rstrip("/")
        self._file_type = fs.FileType
        self._selector = fs.FileSelector
        self.uri = uri

    def prepare(self) -> None:
        """Implements `Storage.prepare`."""
        self._make_folder(self._root)

    def _make_folder(self, path: str) -> None:
        if self._files.type_name not in OBJECT_STORAGE:
            self._files.create_dir(path, recursive=True)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes:
        """Implements `Storage.read`."""
        with self._files.open_input_stream(self._at(name)) as file:
            return bytes(file.read())

    def write(self, name: str, data: bytes) -> None:
        """Implements `Storage.write`. An object appears when its stream is closed."""
        with self._files.open_output_stream(self._at(name)) as file:
            file.write(data)

    def delete(self, name: str) -> None:
        """Implements `Storage.delete`."""
        if self.exists(name):
            self._files.delete_file(self._at(name))

    def exists(self, name: str) -> bool:
        """Implements `Storage.exists`."""
        return bool(self._files.get_file_info(self._at(name)).type == self._file_type.File)

    def sizes(self) -> dict[str, int]:
        """Implements `Storage.sizes`."""
        selector = self._selector(self._root, allow_not_found=True, recursive=True)
        files = (info for info in self._files.get_file_info(selector) if info.type == self._file_type.File)
        return {info.path[len(self._root) + 1 :]: info.size for info in files}

    def open(self, name: str) -> Any:
        """Implements `Storage.open`."""
        return self._files.open_input_file(self._at(name))

    @contextmanager
    def create(self, name: str) -> Iterator[HashedFile]:
        """Implements `Storage.create`. A file that was cut short is not in the manifest: the next run deletes it."""
        place = self._at(name)
        self._make_folder(place.rpartition("/")[0])
        with self._files.open_output_stream(place) as file:
            yield HashedFile(file)


def is_uri(place: str | Path) -> bool:
    """Returns True for a URI, which begins with the scheme of a file system, and False for a path."""
    scheme = urlsplit(place).scheme if isinstance(place, str) else ""
    return len(scheme) > 1


def local_path(place: str | Path) -> Path | None:
    """Returns the path of a local folder, or None for another file system. Understands `file:` URIs.

    Raises:
        KcoreError: a `file:` URI names a host.
    """
    if isinstance(place, Path) or not is_uri(place):
        return Path(place)
    parts = urlsplit(place)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost"):
        raise KcoreError(f"{place}: a file: URI must not name a host; valid: file:///path")
    return Path(unquote(parts.path))


def storage_of(place: str | Path | Storage) -> Storage:
    """Returns the storage at a path or URI.

    Raises:
        ConfigError: pyarrow does not support the scheme, or the URI is malformed.
    """
    if isinstance(place, Storage):
        return place
    path = local_path(place)
    return LocalStorage(path) if path is not None else ArrowStorage(str(place))


def write_whole(path: Path, data: bytes) -> None:
    """Writes a local file atomically and durably."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    put_in_place(temporary, path)


def put_in_place(temporary: Path, path: Path) -> None:
    """Renames a finished file durably to its final name."""
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names of the files in a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def digest(storage: Storage, name: str) -> str:
    """Returns the SHA-256 of a file in hexadecimal digits."""
    sha256 = hashlib.sha256()
    with storage.open(name) as file:
        while chunk := file.read(CHUNK_BYTES):
            sha256.update(chunk)
    return sha256.hexdigest()
