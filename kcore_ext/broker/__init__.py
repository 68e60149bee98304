"""Compiled parts of the broker: produce, fetch, producers, compaction."""
