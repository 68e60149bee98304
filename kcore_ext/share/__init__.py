"""Compiled parts of `kcore.share`."""
