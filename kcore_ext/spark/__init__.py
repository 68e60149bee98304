"""Columns of events and records, filled from Arrow buffers."""
