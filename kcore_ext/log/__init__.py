"""Compiled parts of the log: partitions and the cache of their newest batches."""
