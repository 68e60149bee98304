"""The console: a page for operators that shows groups, topics and transactions, and the JSON documents behind it.

The documents read the state of the engine directly, without authorization, as `/metrics` does. Each is a generator that
pauses after a bounded number of steps, so that a node with many groups serves its clients meanwhile. The page in
`static/` needs no build: a browser loads its three files from the node.
"""

from kcore.server.console.documents import DOCUMENTS
from kcore.server.console.paging import BadQueryError, Query
from kcore.server.console.static_files import STATIC, read_static

__all__ = ["DOCUMENTS", "STATIC", "BadQueryError", "Query", "read_static"]
