"""Reads an encoded OffsetCommit request without making objects; only for other compiled modules."""
