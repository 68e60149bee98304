"""The client API: nodes, topics, groups, members and transactions, for embedded engines and for clusters.

`kcore.open` and `kcore.connect` return a `Node`, `kcore.open_async` and `kcore.connect_async` an `AsyncNode`.
"""
