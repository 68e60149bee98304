"""Inspection of logs and groups in a data folder, an engine, or a running server."""

from kcore.inspect.events import Event, decode_batch
from kcore.inspect.groups import Target, list_groups, log_ends, offset_rows, owned_partitions
from kcore.inspect.sources import Selection, folder_events, server_events
from kcore.protocol.error_codes import code_name

__all__ = [
    "Event",
    "Selection",
    "Target",
    "code_name",
    "decode_batch",
    "folder_events",
    "list_groups",
    "log_ends",
    "offset_rows",
    "owned_partitions",
    "server_events",
]
