"""The transaction coordinator, which tracks the partitions of each transaction, ends it, and writes its end markers.

It implements KIP-98 (transactions), KIP-360 (epochs that clients request), KIP-588 (fencing), KIP-664 (describing),
KIP-890 (transaction.version 1 and 2), KIP-994 and KIP-1152 (filters), and KIP-1228 (versions in markers).
"""
