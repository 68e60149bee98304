"""Compiled parts of `kcore.spark`: conversions between records, events and columns in Arrow's layout."""
