"""Whole files on the file systems of a session: HDFS, S3, Azure and all others that its Hadoop supports.

The driver reads manifests and lists folders with this module. Only Spark's readers and writers read and write data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kcore.errors import KcoreError
from kcore.spark.export.storage import Files, LocalStorage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OF_HADOOP: Final = "VERSION, with the version of the session's Hadoop"
ADVICE = {
    "org.apache.hadoop.fs.s3a.S3AFileSystem": f"org.apache.hadoop:hadoop-aws:{OF_HADOOP}",
    "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem": f"org.apache.hadoop:hadoop-azure:{OF_HADOOP}",
    "delta.DefaultSource": "io.delta:delta-spark_SPARK_2.13:VERSION, with the version of Spark, and Delta's settings",
}
"""Class that Spark's own distribution lacks -> the package that contains the class."""

IS_DIRECTORY: Final = "; isDirectory="
STATUS: Final = re.compile(rf"path=(.*?){IS_DIRECTORY}false; length=(\d+); ", re.DOTALL)
"""A pattern that finds the path and the size in the text of Hadoop's `FileStatus`."""

CHECKSUM: Final = re.compile(r"(^|/)\.[^/]*\.crc$")
"""A pattern for the files with Hadoop's checksums of local files. Hadoop's own listings do not contain these files."""


class HadoopFiles(Files):
    """The files below a folder of any file system of Hadoop.

    Args:
        spark: a session with its own JVM, which a session of Spark Connect does not have.
        location: a URI, or a path on the session's default file system.

    Attributes:
        uri: the folder, with scheme and host.

    Raises:
        KcoreError: the session does not support the file system, or cannot reach it.
    """

    def __init__(self, spark: SparkSession, location: str | Path) -> None:
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise KcoreError(f"{location}: jobs need a session with a JVM of its own, and Spark Connect has none")
        session: Any = spark
        self._location = str(location)
        self._jvm = jvm
        with self._errors():
            configuration = session._jsparkSession.sessionState().newHadoopConf()
            root = jvm.org.apache.hadoop.fs.Path(self._location)
            self._files: Any = root.getFileSystem(configuration)
            self.uri = str(self._files.makeQualified(root).toString()).rstrip("/")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Converts errors of Java in the block to KcoreError, with the first line of their message."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415

        try:
            yield
        except Py4JJavaError as error:
            raise KcoreError(f"{self._location}: {cause_of(error)}") from error

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{name}")

    def read(self, name: str) -> bytes:
        """Implements `Files.read`."""
        if not self.exists(name):
            raise FileNotFoundError(f"{self.uri}/{name}")
        with self._errors():
            stream = self._files.open(self._path(name))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Implements `Files.write`: renames a finished file, which object storage does by a copy."""
        folder, _, own = name.rpartition("/")
        temporary = self._path(f"{folder}/.{own}.tmp" if folder else f".{own}.tmp")
        with self._errors():
            stream = self._files.create(temporary, True)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
            self._files.delete(self._path(name), False)
            self._files.rename(temporary, self._path(name))

    def delete(self, name: str) -> None:
        """Implements `Files.delete`."""
        with self._errors():
            self._files.delete(self._path(name), False)

    def delete_folder(self, name: str) -> None:
        """Deletes a subfolder with all its files, if it exists."""
        with self._errors():
            self._files.delete(self._path(name), True)

    def exists(self, name: str) -> bool:
        """Implements `Files.exists`; True for folders, too."""
        with self._errors():
            return bool(self._files.exists(self._path(name)))

    def sizes(self) -> dict[str, int]:
        """Implements `Files.sizes`. Returns an empty dict for a missing folder."""
        if self._files.getScheme() == "file":  # Hadoop starts a process for each local file, to get its owner
            local = LocalStorage(self.uri.partition(":")[2])
            return {name: size for name, size in local.sizes().items() if not CHECKSUM.search(name)}
        with self._errors():
            root = self._jvm.org.apache.hadoop.fs.Path(self.uri)
            if not self._files.exists(root):
                return {}
            statuses = self._jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(
                self._files.listFiles(root, True)
            )
            # Gets all files in one string, because each call of a Java method costs a millisecond.
            listing = str(statuses.toString())
            sizes = [(match[1], int(match[2])) for match in STATUS.finditer(listing)]
            exact = len(sizes) == listing.count(IS_DIRECTORY) == statuses.size()
            if not exact or not all(path.startswith(f"{self.uri}/") for path, _ in sizes):
                # A name has delimiters, or the text does not contain the values, as that of viewfs.
                sizes = [(str(status.getPath().toString()), int(status.getLen())) for status in statuses]
        return {path[len(self.uri) + 1 :]: size for path, size in sizes}


def cause_of(error: Any) -> str:
    """Returns the cause of an error of Java in one line, with advice if a file system is not installed."""
    exception = error.java_exception
    while exception.getCause() is not None:
        exception = exception.getCause()
    text = str(exception.toString()).splitlines()[0]
    for name, package in ADVICE.items():
        if "ClassNotFound" in text and name in text:
            return f"{text}; add --conf spark.jars.packages={package}"
    return text
