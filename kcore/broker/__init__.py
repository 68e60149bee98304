"""The broker: topics and their settings (the control plane), their partitions and what is in them (the data plane)."""
