"""The data plane: partitions, producers, produce, fetch and retention."""
