"""The broker: topics and their settings (the control plane), partitions and their records (the data plane)."""
