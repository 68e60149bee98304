"""Log compaction: the cleaner, its schedule and its checks."""
