"""Inspection of logs and groups in a data folder, an engine, or a running server."""

from kcore.inspect.events import Event, decode_batch
from kcore.inspect.groups import OffsetRow, log_ends, offset_rows
from kcore.inspect.sources import Selection, cluster_events, folder_events, server_events

__all__ = [
    "Event",
    "OffsetRow",
    "Selection",
    "cluster_events",
    "decode_batch",
    "folder_events",
    "log_ends",
    "offset_rows",
    "server_events",
]
