"""The transaction coordinator: who writes in which transaction, how it ended, and telling every partition so.

KIP-98 (transactions), KIP-360 (epochs asked for by clients), KIP-588 (fencing), KIP-664 (describing), KIP-890
(transaction.version 1 and 2), KIP-994 and KIP-1152 (filters), KIP-1228 (versions in markers).
"""
