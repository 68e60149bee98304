"""Coordinator state rebuilt from event logs, and its tables."""
