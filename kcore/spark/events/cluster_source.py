"""The logs of a cluster of kcore nodes, read from its store while the nodes run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.cluster.store import METADATA
from kcore.cluster.urls import open_store
from kcore.errors import KcoreError
from kcore.inspect.sources import topic_names
from kcore.log.shared_engine import SharedLogEngine
from kcore.spark.events.sources import FolderSource, Part, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kcore.log import PartitionLog
    from kcore.log.interface import PartitionKey
    from kcore.spark.events.event import EventRow


class ClusterSource(FolderSource):
    """The partitions of a cluster, read from the database at the URL of its store. The nodes of the cluster need not
    run.

    `parts` fixes the end of each partition. It looks up the partitions one after the other, so the ends of growing
    partitions are from slightly different times.

    Args:
        url: the URL of the cluster's store.

    Raises:
        KcoreError: the cluster has no metadata yet.
        LogError: the store cannot be reached.
    """

    parallel = True

    def __init__(self, url: str) -> None:
        self._store = open_store(url)
        try:
            self._shared = self._engine = SharedLogEngine(self._store.reader())
            if self._shared.follow(METADATA) is None:
                raise KcoreError("the store has no metadata log: run `kcore cluster init`")
            names = topic_names(self._engine)
            self._keys = {
                (names[key.topic_id], key.partition): key
                for _, key, _, _ in self._store.leaders()
                if key.topic_id in names
            }
        except BaseException:
            self._store.close()
            raise

    def parts(self) -> list[Part]:
        """Implements `Source.parts`. A partition that was deleted since the job began is left out."""
        for name, key in list(self._keys.items()):
            if self._shared.follow(key) is None:
                del self._keys[name]
        return super().parts()

    def _log(self, key: PartitionKey) -> PartitionLog:
        log = self._shared.get(key) or self._shared.follow(key)
        if log is None:
            raise KcoreError(f"{key} was deleted")
        return log

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Implements `Source.read_rows`."""
        return super().read_rows(_within_part(span))

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Implements `Source.read_batches`."""
        return super().read_batches(_within_part(span))

    def close(self) -> None:
        """Implements `Source.close`."""
        super().close()
        self._store.close()


def _within_part(span: Span) -> Span:
    """Limits a span to the end that `ClusterSource.parts` has fixed for its partition.

    Compaction may have merged the last batch before this end with later batches. The merged batch then has rows beyond
    the end.
    """
    end = span.part.end
    return span if end is None or (span.stop is not None and span.stop <= end) else span._replace(stop=end)
