"""Raises the exception of a failed encoding, for other compiled modules."""
